"""What nets learn in float32 and in bfloat16 on the CPU, from the same seeds: losses on the way, accuracy at the end.

    python benchmarks/precision_accuracy.py [--seeds N] [--iterations N] [--keep] [NET ...]

The example's images (6,000 of Fashion-MNIST), for cifar10_quick scaled to 32 x 32 with three equal channels; batches of
64 and momentum 0.9. ``direct`` is float32 without Winograd's filtering (``engine: CAFFE``). ``loss``: the largest
difference from float32's, of means of 20 iterations.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

import numpy as np
from google.protobuf import text_format

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from asynchrony.images import make_databases  # noqa: E402
from asynchrony.runs import net_text  # noqa: E402
from figures import Figures, add_flag  # noqa: E402
from nets.architectures import ARCHITECTURES  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.training.assembly import build_solver  # noqa: E402
from scaffe.training.observers.test import means  # noqa: E402
from scaffe.training.solver import Observer  # noqa: E402

BATCH, N_TESTS, WINDOW = 64, 10, 20
RATES = {"lenet": 0.01, "cifar10_quick": 0.01}
WAYS = {"direct": "fp32", "float32": "fp32", "bfloat16": "bf16"}
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "fashion_mnist"


class Losses(Observer):
    """Keeps the loss of every iteration."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def gradients_ready(self, solver, loss, rate):
        """See Observer."""
        self.losses.append(float(loss))


def train(net: str, way: str, seed: int, n_iterations: int, data: Path) -> tuple[np.ndarray, float]:
    """The losses of a run, and the accuracy of the net that it leaves."""
    text = net_text(net, data, BATCH)
    if way == "direct":
        text = re.sub(r"convolution_param \{", "convolution_param { engine: CAFFE", text)
    param = text_format.Parse(
        f'base_lr: {RATES[net]} momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed" random_seed: {seed} '
        f"max_iter: {n_iterations} display: 0 test_iter: {N_TESTS} test_interval: {n_iterations + 1} "
        f"test_initialization: false snapshot_after_train: false net_param {{ {text} }}", caffe_pb2.SolverParameter())
    options = Namespace(reduce="auto", wire="", bucket="auto", threads=1, readers=1, level=0, stage="", gpu="",
                        allow_nan=False, skip_bad_records=0, precision=WAYS[way], strategy="auto", scal="strong")
    solver = build_solver(Communicator.single(), param, options)
    losses = Losses()
    solver.observers.append(losses)
    solver.solve()
    _, lines, _ = means(solver, solver.test_nets[0], N_TESTS)
    for one in (solver.net, *solver.test_nets):
        one.close()
    return np.array(losses.losses), next(float(line.split("accuracy = ")[1]) for line in lines if "accuracy" in line)


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(RATES)}; all if none is named")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=300)
    add_flag(parser)
    args = parser.parse_args()
    log.silence(True)
    columns = ("net, seed", *WAYS, "loss, direct", "loss, bfloat16")
    with Figures("precision-accuracy", columns, f"{args.iterations} iterations.", args.keep) as table:
        for net in args.nets or RATES:
            with tempfile.TemporaryDirectory() as folder:
                make_databases(EXAMPLE, ARCHITECTURES[net]().image, Path(folder))
                for seed in range(1701, 1701 + args.seeds):
                    found = {way: train(net, way, seed, args.iterations, Path(folder)) for way in WAYS}
                    apart = [_largest_difference(found[way][0], found["float32"][0]) for way in ("direct", "bfloat16")]
                    table.add(f"{net}, seed {seed}", *(accuracy for _, accuracy in found.values()),
                              *(f"{share:.1%}" for share in apart))


def _largest_difference(losses: np.ndarray, reference: np.ndarray) -> float:
    """Of means of ``WINDOW`` iterations, as a share."""
    mine, others = (np.convolve(each, np.full(WINDOW, 1 / WINDOW), "valid") for each in (losses, reference))
    return float(np.abs(mine / others - 1).max())


if __name__ == "__main__":
    main()
