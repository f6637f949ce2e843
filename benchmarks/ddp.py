"""Images per second of training on several ranks, beside PyTorch's DistributedDataParallel over gloo.

    python benchmarks/ddp.py [--peer PYTHON_WITH_TORCH] [--ranks N] [--rounds N] [--ours STRATEGY:REDUCE,...] [NET ...]

One thread a rank; every rank trains on its share of one global batch that lies in memory. First both sides train a few
steps from the same weights, without dropout, and must reach the same loss. Then they take turns, each way of ours and
of PyTorch's; while one side runs the other sleeps. Ratios are of median step times, to PyTorch as it comes and to its
fastest way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from compute import Ours  # noqa: E402
from figures import Cell, Figures, Sample, add_flag, version  # noqa: E402
from launcher import mpirun  # noqa: E402
from nets.architectures import BATCHES  # noqa: E402

from scaffe.nets.devices import load_kernels  # noqa: E402

PEERS = Path(__file__).parent / "peers"
OURS = "sc-b:auto,sc-ob:auto,sc-obr:auto,sc-rs:auto,sc-b:mpi"
THEIRS = ("plain", "fused", "channels_last+fused")
CHECK_STEPS = 2  # an update; batch norm lets rounding grow: after 5 PyTorch's own ways are 2 % apart
TOLERANCE = 2e-3
ROUND_SECONDS = 0.5
COLUMNS = ("net, images, way", "images/s", "ms a step", "x DDP", "x its best")


class Side:
    """Some ranks in processes of their own that sleep until they are told to train.

    Each reads commands from a named pipe of its own: a rank that waited for rank 0 in MPI would spin.

    Args:
        command: starts the ranks; it gets the folder as its last argument.
        folder: where the pipes ``commands.R`` are made and ``net.npz`` lies.
        n_ranks: how many.
    """

    def __init__(self, command: list[str], folder: Path, n_ranks: int) -> None:
        folder.mkdir()
        pipes = [folder / f"commands.{rank}" for rank in range(n_ranks)]
        for pipe in pipes:
            os.mkfifo(pipe)
        self._process = subprocess.Popen([*command, str(folder)], stdout=subprocess.PIPE, text=True)
        self._pipes = [os.fdopen(os.open(pipe, os.O_RDWR), "w") for pipe in pipes]  # waits for no rank that never comes

    def ask(self, how: str, n_steps: int, check: str = "") -> dict[str, float]:
        """Train so many steps that way on all ranks; to check, anew and without dropout. Returns the seconds of the
        slowest rank and the last loss."""
        for pipe in self._pipes:
            print(how, n_steps, check, file=pipe, flush=True)
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SystemExit(f"{how}: the ranks ended without an answer")
        return json.loads(line)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        self._process.wait(timeout=60)


def verify(ours: Side, theirs: Side, how: str) -> None:
    """Stop unless both sides reach the same loss from the same weights, without dropout."""
    mine, other = ours.ask(how, CHECK_STEPS, "check")["loss"], theirs.ask("plain", CHECK_STEPS, "check")["loss"]
    if not np.isclose(mine, other, rtol=TOLERANCE):
        raise SystemExit(f"after {CHECK_STEPS} steps the loss differs: {mine} here, {other} in PyTorch")


def race(name: str, args: argparse.Namespace, folder: Path) -> list[list[Cell]]:
    """One net's rows of the table."""
    batch = BATCHES[name]
    Ours(name, batch, load_kernels(1)).save(folder / f"{name}.npz")
    ranks = str(args.ranks)
    ours = Side(mpirun(args.ranks, PEERS / "ddp_ours.py", name, folder / f"{name}.npz"), folder / f"{name}.ours",
                args.ranks)
    theirs = args.peer and Side([args.peer, str(PEERS / "ddp_torch.py"), name, str(folder / f"{name}.npz"), ranks],
                  folder / f"{name}.theirs", args.ranks)
    ways = [(ours, how) for how in args.ours.split(",")] + [(theirs, how) for how in (THEIRS if args.peer else ())]
    if args.peer:
        verify(ours, theirs, ways[0][1])
    seconds: dict[str, list[float]] = {how: [] for _, how in ways}
    steps = {how: max(round(ROUND_SECONDS * 3 / side.ask(how, 3)["seconds"]), 1)
             for side, how in [*ways, *ways]}  # the second time is warm
    for _ in range(args.rounds):
        for side, how in ways:
            seconds[how].append(side.ask(how, steps[how])["seconds"] / steps[how])
    ours.close()
    if args.peer:
        theirs.close()
    return _rows(name, batch, seconds)


def _rows(name: str, batch: int, seconds: dict[str, list[float]]) -> list[list[Cell]]:
    medians = {how: median(times) for how, times in seconds.items()}
    plain = medians.get(THEIRS[0])
    best = min((medians[how] for how in THEIRS if how in medians), default=None)
    return [[f"{name}, {batch} images, {how}", Sample([batch / s for s in times]), 1e3 * medians[how],
             plain and plain / medians[how], best and best / medians[how]] for how, times in seconds.items()]


def main() -> None:
    """Print a table of the nets asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", help="LeNet and cifar10_quick if none is named")
    parser.add_argument("--peer", default="", help="a Python that has torch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ours", default=OURS, help="STRATEGY:REDUCE[:BUCKET],...")
    add_flag(parser)
    args = parser.parse_args()
    note = f"{args.ranks} ranks of one thread, medians of {args.rounds} rounds, slowest rank."
    versions = {"PyTorch": version(args.peer, "torch")} if args.peer else {}
    with (tempfile.TemporaryDirectory() as folder,
          Figures("data-parallel", COLUMNS, note, args.keep, versions, str(args.ranks)) as table):
        for name in args.nets or ("lenet", "cifar10_quick"):
            for row in race(name, args, Path(folder)):
                table.add(*row)


if __name__ == "__main__":
    main()
