"""L-BFGS beside others': minima, seconds, uneven replicas, bytes, and DistBelief's comparison of methods in small.

    python benchmarks/sandblaster.py convex    [--json FILE]                  wants the extra "bench"
    python benchmarks/sandblaster.py sparse    [--json FILE]                  the same
    python benchmarks/sandblaster.py lenet     --peer PYTHON_WITH_TORCH [--json FILE]
    python benchmarks/sandblaster.py uneven    [--rounds N] [--json FILE]
    python benchmarks/sandblaster.py messages  [--json FILE]
    python benchmarks/sandblaster.py methods   [--workers 1,2,..] [--ways WAY,..] [--steps N] [--json FILE]
    python benchmarks/sandblaster.py simulated [--net mlp|lenet] [--workers 1,10,..] [--ways WAY,..] [--epochs N]
    python benchmarks/sandblaster.py draw FILE.json ... --out FOLDER

Images are the example's (databases as ``make train`` leaves them). Results are added to the JSON file, so that parts
can be run at different times.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

FETCHED = Path(__file__).resolve().parent
ROOT = FETCHED.parent
sys.path[:0] = [str(ROOT), str(FETCHED)]

from figures import add_flag  # noqa: E402
from sandblaster_parts.convex import measure_convex  # noqa: E402
from sandblaster_parts.pictures import draw  # noqa: E402
from sandblaster_parts.runs import MPIRUN, run, solver_text, write_net  # noqa: E402
from sandblaster_parts.simulated import measure_simulated, reached  # noqa: E402
from sandblaster_parts.sparse import measure_sparse  # noqa: E402

N_TRAIN = 6000
LEARNT = 0.5  # an accuracy that a run which diverged does not have


def measure_lenet(args: argparse.Namespace) -> list[dict[str, Any]]:
    """LeNet's loss after some steps, and seconds a pass: ours and PyTorch's LBFGS in turns, from the same weights."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_net(folder, args.data, "lenet", args.portion)
        tail = [str(folder), str(args.steps), str(args.threads), args.data]
        for _ in range(args.rounds):
            for which, python in (("ours", sys.executable), ("torch", args.peer)):
                words = [python, str(FETCHED / f"peers/lbfgs_{which}.py"), *tail]
                found = json.loads(run(words).stdout.splitlines()[-1])
                rows.append({"part": "lenet", "who": which, "threads": args.threads, **found})
                print(f"lenet {which:6s} loss {found['loss']:.6f} after {found['steps']} steps, {found['evaluations']} "
                      f"passes, {found['seconds_per_pass']:.3f} s a pass")
    return rows


def measure_uneven(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Four replicas, one four times slower and one that stops: a pass's time over total work / total speed."""
    rows = []
    for _ in range(args.rounds):
        for way in ("portions", "no backup", "quarters"):
            done = run([MPIRUN, "-np", "5", sys.executable, str(FETCHED / "peers/lbfgs_uneven.py"), way, str(args.base),
                        str(args.uneven_steps)])
            found = json.loads(done.stdout.splitlines()[-1])
            rows.append({"part": "uneven", "way": way, **found})
            print(f"uneven {way:10s} {found['ratio']:.2f} of total work / total speed; {found['again']} portions given "
                  f"out again, {found['late']} too late, {found['fenced']} fenced")
    return rows


def measure_messages(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Bytes that a rank sends, Sandblaster beside Downpour, a rank an emulated node."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_net(folder, args.data, "lenet", args.portion)
        done = run([MPIRUN, "-np", str(args.nodes), sys.executable, str(FETCHED / "peers/lbfgs_bytes.py"), str(folder)],
                   SCAFFE_RANKS_PER_NODE="1")
        for line in done.stdout.splitlines():
            found = json.loads(line)
            rows.append({"part": "messages", **found})
            print(f"messages {found['way']:12s} {found['bytes_per_link']:.4g} bytes a link and {found['unit']}, "
                  f"{found['of_minimum']:.3f} of (1 fetch + {found['pushes']:.2f} gradients) x parameters"
                  f"{found['said']}")
    return rows


WAYS = {
    "SGD": ("-strategy sc-b", "base_lr: {} momentum: 0", (0.05,)),
    "Downpour SGD": ("-strategy downpour -scal weak", "base_lr: {} momentum: 0", (0.05, 0.02, 0.01)),
    "Downpour AdaGrad": ("-strategy downpour -scal weak", 'type: "AdaGrad" base_lr: {} momentum: 0', (0.01,)),
    "Sandblaster": ("", 'type: "LBFGS" base_lr: {} lbfgs_param {{ portion: 125 }}', (1,)),
}
"""For each way flags, the solver's rule, and learning rates: the next where a run learns nothing at the one before."""


def measure_methods(args: argparse.Namespace) -> list[dict[str, Any]]:
    """DistBelief's figures 4 and 5 in small: accuracy against seconds for every method and number of workers."""
    rows = []
    for n_workers in map(int, args.workers.split(",")):
        for way in args.ways.split(",") if args.ways else WAYS:
            for rate in WAYS[way][2]:
                points = train_by(way, rate, n_workers, args)
                if points[-1][1] >= LEARNT:
                    break
            rows.append({"part": "methods", "way": way, "workers": n_workers, "rate": rate, "points": points})
            print(f"methods {way:17s} {n_workers} worker(s), rate {rate}: accuracy {points[-1][1]:.3f} after "
                  f"{points[-1][0]:.1f} s, {reached(points, args.accuracy):.1f} s to {args.accuracy}", flush=True)
    return rows


def train_by(way: str, rate: float, n_workers: int, args: argparse.Namespace) -> list[tuple[float, float]]:
    """(seconds, accuracy) of the tests of one run."""
    flags, rule, _ = WAYS[way]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_net(folder, args.data, "lenet", 64)
        steps = args.steps if way == "Sandblaster" else args.steps * N_TRAIN // 64 // (
            n_workers if "weak" in flags else 1)
        text = solver_text(folder, rule.format(rate), steps, max(steps // args.tests, 1))
        (folder / "solver.prototxt").write_text(text)
        done = run([MPIRUN, "-np", str(n_workers), sys.executable, "-m", "scaffe", "train", "-solver",
                    f"{folder}/solver.prototxt", "-threads", "1", "-allow_nan", *flags.split()])
    return accuracies(done.stderr)


def accuracies(log: str) -> list[tuple[float, float]]:
    """(seconds since the first test, accuracy) of every test in a log."""
    points, begun, seconds = [], None, 0.0
    for line in log.splitlines():
        if found := re.search(r"(\d\d:\d\d:\d\d\.\d+) .*Iteration (\d+), Testing net", line):
            clock = datetime.strptime(found[1], "%H:%M:%S.%f")
            begun = begun or clock
            seconds = (clock - begun).total_seconds() % 86400
        elif found := re.search(r"accuracy = (\S+)", line):
            points.append((seconds, float(found[1])))
    return points


PARTS = {"convex": measure_convex, "sparse": measure_sparse, "lenet": measure_lenet, "uneven": measure_uneven,
         "messages": measure_messages, "methods": measure_methods, "simulated": measure_simulated}


def main() -> None:
    """Run the part that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=(*PARTS, "draw"))
    parser.add_argument("files", nargs="*", help="what to draw")
    parser.add_argument("--data", default=str(ROOT / "examples/fashion_mnist"), help="folder of the databases")
    parser.add_argument("--json", default="", help="results are added to this file")
    parser.add_argument("--peer", default="", help="a Python with PyTorch")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50, help="lenet: steps; methods: passes over the images")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--portion", type=int, default=250)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--base", type=float, default=0.1, help="uneven: seconds of a portion")
    parser.add_argument("--saga", type=int, default=2000, help="sparse: passes of scikit-learn's SAGA at most")
    parser.add_argument("--sparse-steps", type=int, default=2500, help="sparse: steps at most")
    parser.add_argument("--uneven-steps", type=int, default=24, help="uneven: steps, four of them to warm up")
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--net", default="mlp", choices=("mlp", "lenet"), help="simulated: which net")
    parser.add_argument("--ways", default="", help="methods, simulated: all if none is named")
    parser.add_argument("--epochs", type=int, default=30, help="simulated: passes over the images, in all")
    parser.add_argument("--tests", type=int, default=10)
    parser.add_argument("--accuracy", type=float, default=0.75)
    parser.add_argument("--out", default="docs")
    add_flag(parser)
    args = parser.parse_args()
    if args.part == "draw":
        rows = [row for file in args.files for row in json.loads(Path(file).read_text())]
        draw(rows, args.accuracy, Path(args.out), args.keep)
        return
    rows = PARTS[args.part](args)
    if args.json:
        path = Path(args.json)
        path.write_text(json.dumps([*(json.loads(path.read_text()) if path.exists() else []), *rows], indent=1))


if __name__ == "__main__":
    main()
