"""What asynchrony gains and costs: images per second with a worker that is late, accuracy per image and per second.

    python benchmarks/asynchronous.py late     [--ranks N] [--rounds N] [--peer PYTHON_WITH_TORCH] [--json FILE]
    python benchmarks/asynchronous.py accuracy [--net NET] [--workers 1,2,..] [--ways NAME,..] [--seeds N] [--json FILE]
    python benchmarks/asynchronous.py draw FILE.json ... --out FOLDER

``late``: every worker trains a small net and sleeps besides, so that many workers fit on few cores. ``accuracy``:
trains on the example's images (``--data``: those of a folder that has archives in MNIST's format), the same number of
images with any number of workers. ``draw``: pictures, and tables of the accuracies. Runs append to the JSON file, so
that parts can be run at other times.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

FETCHED = Path(__file__).resolve().parent
ROOT = FETCHED.parent
sys.path[:0] = [str(ROOT), str(FETCHED)]

from asynchrony.images import make_databases  # noqa: E402
from asynchrony.pictures import draw  # noqa: E402
from asynchrony.runs import WAYS, make_run  # noqa: E402
from figures import Figures, Sample, add_flag, version  # noqa: E402
from lateness import KINDS  # noqa: E402
from launcher import mpirun  # noqa: E402

LATE_WAYS = ("sc-b", "ssp:0", "ssp:1", "ssp:3", "ssp:inf")
ALONE = ["BSP", "Downpour SGD", "Downpour SGD low", "Downpour AdaGrad"]
MANY = [way for way in WAYS if way != "sc-b" and not way.startswith("n_sync")]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; a failure ends the benchmark with the end of what it said."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-800:]}")
    return done


def measure_late(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Images per second of every way under every lateness; medians over the rounds, in which ways take turns."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(args.rounds):
        tail = [str(args.base), str(args.iterations)]
        commands = [mpirun(args.ranks, FETCHED / "peers/late_ours.py", *tail, ",".join(LATE_WAYS))]
        if args.peer:
            commands.append([args.peer, str(FETCHED / "peers/late_torch.py"), *tail, str(args.ranks)])
        for command in commands:
            for line in run(command).stdout.splitlines():
                way, kind, rate = json.loads(line)
                found.setdefault((way, kind), []).append(rate)
    rows = [{"part": "late", "way": way, "late": kind, "workers": args.ranks, "images_per_second": median(rates),
             "rounds": len(rates)} for (way, kind), rates in found.items()]
    for row in rows:
        row["of_nobody_late"] = row["images_per_second"] / median(found[row["way"], KINDS[0]])
    show_late(args, found)
    return rows


def show_late(args: argparse.Namespace, found: dict[tuple[str, str], list[float]]) -> None:
    """The table: images per second with nobody late, and the share of them that is left with a late worker."""
    note = (f"{args.ranks} workers that sleep {1e3 * args.base:g} ms beside a small net, {args.iterations} "
            f"iterations, {args.rounds} rounds; the share of the images/s with nobody late.")
    versions = {"PyTorch": version(args.peer, "torch")} if args.peer else {}
    columns = ("way", "nobody late, images/s", *KINDS[1:])
    with Figures("late-worker", columns, note, args.keep, versions, str(args.ranks)) as table:
        for way in dict.fromkeys(way for way, _ in found):
            on_time = found[way, KINDS[0]]
            table.add(way, Sample(on_time), *(median(found[way, kind]) / median(on_time) for kind in KINDS[1:]))


def measure_accuracy(args: argparse.Namespace) -> list[dict[str, Any]]:
    """All runs that were asked for: those on as many workers and with the same seed are one job."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_databases(Path(args.data), (1, 28, 28) if args.net == "lenet" else (3, 32, 32), folder)
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            for n_workers in map(int, args.workers.split(",")):
                ways = args.ways.split(",") if args.ways else ALONE if n_workers == 1 else MANY
                rows += _train_all([make_run(args.net, way, n_workers, seed, args.images, args.tests, folder)
                                    for way in ways], folder)
                if args.json:  # what is there stays there
                    _add(args.json, rows)
                    rows = []
    return rows


def _train_all(runs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Train runs in one MPI job; they have the same number of workers."""
    described, found = folder / "runs.json", folder / "found.jsonl"
    described.write_text(json.dumps(runs))
    found.unlink(missing_ok=True)
    command = mpirun(runs[0]["workers"], FETCHED / "peers/accuracy_ours.py", described, found)
    if subprocess.run(command, cwd=ROOT).returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return [json.loads(line) for line in found.read_text().splitlines()]


def main() -> None:
    """Run the part that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("late", "accuracy", "draw"))
    parser.add_argument("files", nargs="*", help="what to draw")
    parser.add_argument("--json", default="", help="results are added to this file")
    parser.add_argument("--ranks", type=int, default=4, help="late: workers")
    parser.add_argument("--rounds", type=int, default=3, help="late: the median of so many runs counts")
    parser.add_argument("--iterations", type=int, default=120, help="late: of a run")
    parser.add_argument("--base", type=float, default=0.03, help="late: seconds that a worker sleeps an iteration")
    parser.add_argument("--peer", default="", help="late: a Python that has torch")
    parser.add_argument("--net", default="lenet", help="accuracy: or cifar10_quick")
    parser.add_argument("--workers", default="1,2,4,8,16", help="accuracy: numbers of workers")
    parser.add_argument("--ways", default="", help="accuracy: all but n_sync's if none is named")
    parser.add_argument("--seeds", type=int, default=3, help="accuracy: how many")
    parser.add_argument("--first-seed", type=int, default=100, help="accuracy: the first of them")
    parser.add_argument("--images", type=int, default=19200, help="accuracy: of a run")
    parser.add_argument("--tests", type=int, default=6, help="accuracy: tests in a run")
    parser.add_argument("--data", default=str(ROOT / "examples/fashion_mnist"), help="accuracy: the archives' folder")
    parser.add_argument("--out", default=str(ROOT / "docs"), help="draw: the pictures' folder")
    add_flag(parser)
    args = parser.parse_args()
    if args.part == "draw":
        draw([row for file in args.files for row in json.loads(Path(file).read_text())], Path(args.out), args.keep)
        return
    rows = measure_late(args) if args.part == "late" else measure_accuracy(args)
    if args.json:
        _add(args.json, rows)


def _add(path: str, rows: list[dict[str, Any]]) -> None:
    """Add rows to a file of JSON."""
    file = Path(path)
    file.write_text(json.dumps([*(json.loads(file.read_text()) if file.exists() else []), *rows]))


if __name__ == "__main__":
    main()
