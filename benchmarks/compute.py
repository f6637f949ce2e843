"""Images per second of training, forward, backward and SGD, against PyTorch on the same nets, weights and threads.

    python benchmarks/compute.py [--peer PYTHON_WITH_TORCH] [--precision bf16] [--threads N] [--rounds N] [NET ...]

First both compute loss and gradients of the same batch from the same weights. Then they take turns: ours, PyTorch as
it comes (NCHW, default SGD) and PyTorch's best variant for that net (channels_last, fused or foreach SGD; found first).
The ratios are of median step times. Without a peer, ours only. With bf16, ours and PyTorch's, by its autocast, compute
in bfloat16, and ours in float32 takes turns with them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from figures import Cell, Figures, Sample, add_flag, version  # noqa: E402
from nets.architectures import ARCHITECTURES, BATCHES  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402

from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.layers.base.context import Context  # noqa: E402
from scaffe.layers.base.layer import TEST, TRAIN  # noqa: E402
from scaffe.layers.base.random import Stream  # noqa: E402
from scaffe.memory.problem.activations import pass_diffs  # noqa: E402
from scaffe.nets import graph  # noqa: E402
from scaffe.nets.build import build_net  # noqa: E402
from scaffe.nets.devices import Compute, load_kernels  # noqa: E402
from scaffe.nets.fusion import join_backward  # noqa: E402
from scaffe.nets.net import Net  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.solver import Solver  # noqa: E402

ENVIRONMENT = dict(os.environ)  # as it was given: our kernels set OpenMP's waiting to their liking, peers keep theirs
PEER = Path(__file__).parent / "peers" / "torch_nets.py"
VARIANTS = ("plain", "fused", "channels_last", "channels_last+fused", "channels_last+foreach")
TOLERANCE, HALF_TOLERANCE = 2e-3, 1e-2
ROUND_SECONDS = 0.3
COLUMNS = ("net", "ours, images/s", "PyTorch", "its best", "x PyTorch", "x its best", "its best variant")


class Ours:
    """Our solver on one rank, fed with one batch.

    Args:
        name, batch: the net and its batch.
        kernels: the CPU's, set to the threads wanted.
        precision: of the activations.
    """

    def __init__(self, name: str, batch: int, kernels: object, precision: str = "fp32") -> None:
        self._message = parse_text(prototxt(name, batch), caffe_pb2.NetParameter)
        dtype = Compute(precision=precision).dtype
        self._context = {phase: Context(phase, kernels, dtype, Stream(1701)) for phase in (TRAIN, TEST)}
        self.net = self._build(TRAIN)
        rng = np.random.default_rng(1)
        self.batch = {"data": rng.standard_normal(self.net.blobs["data"].shape, np.float32),
                      "label": rng.integers(0, ARCHITECTURES[name]().n_classes, batch)}
        self._feed(self.net)
        pass_diffs(self.net)  # as train does
        join_backward(self.net.nodes)
        param = parse_text('base_lr: 1e-4 momentum: 0.9 weight_decay: 5e-4 lr_policy: "fixed"',
                           caffe_pb2.SolverParameter)
        self.solver = Solver(param, self.net, [], Communicator.single())

    def _build(self, phase: int, trained: Net | None = None) -> Net:
        message = caffe_pb2.NetParameter()
        message.CopyFrom(self._message)
        return build_net(graph.prepare(message, phase), self._context[phase], trained)

    def _feed(self, net: Net) -> None:
        for name, values in self.batch.items():
            net.blobs[name].data = values

    def step(self, n_steps: int) -> float:
        """Train so many steps. Returns the seconds."""
        start = time.perf_counter()
        self.solver.step(n_steps)
        return time.perf_counter() - start

    def check(self) -> tuple[float, float]:
        """Loss and norm of the gradients without dropout; normalised by the batch, for there are no statistics yet."""
        for layer in self._message.layer:
            if layer.type == "BatchNorm":
                layer.batch_norm_param.use_global_stats = False
        net = self._build(TEST, self.net)
        self._feed(net)
        loss = net.forward_backward()
        squares = sum(float(np.square(blob.diff, dtype=np.float64).sum()) for n in net.nodes for blob in n.layer.blobs)
        return loss, squares ** 0.5

    def save(self, path: Path) -> None:
        """The batch and the weights, for the peer."""
        arrays = dict(self.batch)
        for node in self.net.nodes:
            for blob, part in zip(node.layer.blobs, ("weight", "bias"), strict=False):
                arrays[f"{node.name}.{part}"] = blob.data
        np.savez(path, **arrays)


class Theirs:
    """PyTorch in its own process."""

    def __init__(self, peer: str, name: str, n_threads: int, path: Path) -> None:
        self._process = subprocess.Popen([peer, str(PEER), name, str(n_threads), str(path)], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self._tell("check")
        answer = self._answer()
        self.loss, self.norm, self.half_loss = answer["loss"], answer["norm"], answer["half_loss"]

    def step(self, variant: str, n_steps: int) -> float:
        """Train so many steps that way. Returns the seconds."""
        self._tell(f"{variant} {n_steps}")
        return self._answer()["seconds"]

    def find_best(self, variants: Sequence[str]) -> str:
        """The fastest variant; the others but the first are dropped."""
        seconds: dict[str, float] = {}
        for variant in variants:
            self.step(variant, 1)
            n_steps = _n_steps(self.step(variant, 1))
            seconds[variant] = min(self.step(variant, n_steps) / n_steps for _ in range(2))
            if seconds[variant] > min(seconds.values()) and variant != variants[0]:
                self._tell(f"drop {variant}")
        return min(seconds, key=seconds.__getitem__)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)

    def _tell(self, line: str) -> None:
        print(line, file=self._process.stdin, flush=True)

    def _answer(self) -> dict[str, float]:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SystemExit("the peer stopped; its own message stands above")
        return json.loads(line)


def _n_steps(seconds: float) -> int:
    """How many steps make a round."""
    return max(round(ROUND_SECONDS / seconds), 1)


def verify(ours: dict[str, Ours], theirs: Theirs) -> None:
    """Stop unless both sides compute the same."""
    names, peers = ("loss", "norm of the gradients"), (theirs.loss, theirs.norm)
    pairs = [(what, mine, other, TOLERANCE)
             for what, mine, other in zip(names, ours["fp32"].check(), peers, strict=True)]
    if "bf16" in ours:
        pairs.append(("loss in bfloat16", ours["bf16"].check()[0], theirs.half_loss, HALF_TOLERANCE))
    for what, mine, other, tolerance in pairs:
        if not np.isclose(mine, other, rtol=tolerance):
            raise SystemExit(f"the {what} differs: {mine} here, {other} in PyTorch")


def race(name: str, batch: int, args: argparse.Namespace, kernels: object) -> list[Cell]:
    """One net's row of the table."""
    ours = {precision: Ours(name, batch, kernels, precision) for precision in dict.fromkeys(("fp32", args.precision))}
    sides = {precision: one.step for precision, one in ours.items()}
    variants = ["+".join(("bf16", *v.split("+"))) for v in VARIANTS] if args.precision == "bf16" else VARIANTS
    best = "-"
    if args.peer:
        with tempfile.TemporaryDirectory() as folder:
            ours["fp32"].save(Path(folder, "net.npz"))
            theirs = Theirs(args.peer, name, args.threads, Path(folder, "net.npz"))
        verify(ours, theirs)
        best = theirs.find_best(variants)
        sides |= {"plain": lambda n: theirs.step(variants[0], n), "best": lambda n: theirs.step(best, n)}
    steps = {side: _n_steps(min(step(1) for _ in range(3))) for side, step in sides.items()}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, step in sides.items():
            step(1)  # the other side's turn has emptied the caches, and a virtual machine's page tables
            seconds[side].append(step(steps[side]) / steps[side])
    if args.peer:
        theirs.close()
    return _row(name, batch, seconds | {"ours": seconds[args.precision]}, best)


def _row(name: str, batch: int, seconds: dict[str, list[float]], best: str) -> list[Cell]:
    """As COLUMNS; ratios are of medians."""
    ours = median(seconds["ours"])
    rates = [Sample([batch / s for s in seconds[side]]) if side in seconds else None
             for side in ("ours", "plain", "best")]
    ratios = [median(seconds[side]) / ours if side in seconds else None for side in ("plain", "best", "fp32")]
    return [f"{name}, {batch} images", *rates, *ratios[:2], *(ratios[2:] if "bf16" in seconds else []), best]


def main() -> None:
    """Print a table of the nets asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(BATCHES)}; all if none is named")
    parser.add_argument("--peer", help="a Python that has torch")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    add_flag(parser)
    args = parser.parse_args()
    kernels = load_kernels(args.threads)
    if not args.peer:
        print("# no --peer with PyTorch given: ours only")
    columns = [*COLUMNS[:-1], *(["x ours in float32"] if args.precision == "bf16" else []), COLUMNS[-1]]
    note = f"{args.precision}, {args.threads} thread{'s' * (args.threads > 1)}, medians of {args.rounds} rounds."
    versions = {"PyTorch": version(args.peer, "torch")} if args.peer else {}
    with Figures("training", columns, note, args.keep, versions, f"{args.precision}-{args.threads}") as table:
        for name in args.nets or BATCHES:
            table.add(*race(name, BATCHES[name], args, kernels))


if __name__ == "__main__":
    main()
