"""Seconds a step of one fully connected net shared by the ranks of this machine, beside PyTorch's tensor parallelism.

    python benchmarks/tensor_parallel.py --peer PYTHON_WITH_TORCH [--ranks N] [--frames N] [--rounds N]

DistBelief's acoustic model (`speech` of partitions.py, 42 million parameters), SGD with momentum, one thread a rank, a
batch of `--frames` for all ranks. PyTorch's ways are DTensor's over gloo: `colwise+rowwise`, its documented pattern for
such nets, `colwise+rowwise+loss`, where the loss stays on split classes (loss_parallel), and `colwise`, every layer
split by outputs. First both sides train a few steps from the same weights and must reach the same loss; then they take
turns, and while one side runs the other sleeps. Medians of the slowest rank's times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from ddp import Side  # noqa: E402
from figures import Figures, Sample, add_flag, version  # noqa: E402
from launcher import mpirun  # noqa: E402

PEERS = Path(__file__).parent / "peers"
WIDTHS = (440, 2560, 2560, 2560, 2560, 8192)
OURS = ("auto",)
THEIRS = ("colwise+rowwise", "colwise+rowwise+loss", "colwise")
CHECK_STEPS, TOLERANCE = 5, 1e-4
ROUND_SECONDS = 1.0


def write_start(path: Path, n_frames: int) -> None:
    """One batch, and weights as Glorot and Bengio draw them."""
    rng = np.random.default_rng(1)
    arrays = {"data": rng.standard_normal((n_frames, WIDTHS[0])), "label": rng.integers(0, WIDTHS[-1], n_frames)}
    for n, (n_in, n_out) in enumerate(zip(WIDTHS, WIDTHS[1:], strict=False), 1):
        limit = np.sqrt(6 / (n_in + n_out))
        arrays[f"fc{n}.weight"] = rng.uniform(-limit, limit, (n_out, n_in))
        arrays[f"fc{n}.bias"] = np.zeros(n_out)
    np.savez(path, **{name: array.astype(np.float32) for name, array in arrays.items()})


def race(args: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """Seconds a step of every way."""
    start = folder / "start.npz"
    write_start(start, args.frames)
    ours = Side(mpirun(args.ranks, PEERS / "tensor_ours.py", start), folder / "ours", args.ranks)
    theirs = Side([args.peer, str(PEERS / "tensor_torch.py"), str(start), str(args.ranks)], folder / "theirs",
                  args.ranks)
    ways = [*((ours, how) for how in OURS), *((theirs, how) for how in THEIRS)]
    losses = {how: side.ask(how, CHECK_STEPS)["loss"] for side, how in ways}
    if not np.allclose(list(losses.values()), losses[OURS[0]], rtol=TOLERANCE):
        raise SystemExit(f"after {CHECK_STEPS} steps the losses differ: {losses}")
    steps = {how: max(round(ROUND_SECONDS * 2 / side.ask(how, 2)["seconds"]), 1) for side, how in ways}
    seconds: dict[str, list[float]] = {how: [] for _, how in ways}
    for _ in range(args.rounds):
        for side, how in ways:
            seconds[how].append(side.ask(how, steps[how])["seconds"] / steps[how])
    ours.close()
    theirs.close()
    return seconds


def main() -> None:
    """Print a table of the ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python that has torch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--frames", type=int, default=64, help="of the whole batch")
    parser.add_argument("--rounds", type=int, default=7)
    add_flag(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = race(args, Path(folder))
    note = f"Speech, {args.ranks} ranks of one thread, {args.frames} frames, medians of {args.rounds} rounds."
    columns, versions = ("way", "frames/s", "ms a step", "x ours"), {"PyTorch": version(args.peer, "torch")}
    with Figures("tensor-parallel", columns, note, args.keep, versions, str(args.ranks)) as table:
        for how, times in seconds.items():
            table.add(how, Sample([args.frames / taken for taken in times]), 1e3 * median(times),
                      median(times) / median(seconds[OURS[0]]))


if __name__ == "__main__":
    main()
