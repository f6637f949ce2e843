"""Training in limited memory: images a second, peak resident memory and page faults of a run against the limit.

    python benchmarks/memory.py NET [-batch N] [-limits 100%,60%,38%] [-placement auto] [-spill FOLDER] [-iterations 8]
                                [-in_turns N] [-narrow N] [-gpu N] [-display N] [-peer PYTHON_WITH_TORCH] [--keep]
    python benchmarks/memory.py bars [-gpu N] ...       # all nets of the bars in one call: see memory_parts/bars.py

Each limit is one run of ``scaffe train`` in a process of its own, on generated images; the runs are repeated in turns,
and the median of all iterations after the plan has been made anew counts. With ``-in_turns N`` all runs are there at
once, and do N iterations each in turn, of which the first does not count. With a peer, PyTorch's steps at that batch
come last, in a process that the system, out of memory, is asked to end before others. On a GPU images are constant, so
that the host draws none; the peak is the host's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import launcher  # noqa: E402, F401 - children find scaffe
from figures import Figures, Sample, add_flag  # noqa: E402
from in_turns import PACE, Turn  # noqa: E402
from memory_parts import bars  # noqa: E402
from memory_parts.nets import SOLVER, net_text  # noqa: E402
from nets.architectures import ARCHITECTURES, BATCHES  # noqa: E402

MOVED = re.compile(r"Memory: (\S+ \S+) written, .* waited (\S+) s, computed again for (\S+) s")
PEER = Path(__file__).resolve().parent / "peers" / "torch_nets.py"
WARM_UP = 4  # iterations before the plan has been made with measured times, and compiling


@dataclass
class Runs:
    """All runs at one limit."""

    limit: str
    paces: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    n_faults: int = 0
    moved: str = ""


def files(folder: Path, options: argparse.Namespace, batch: int) -> None:
    """Write the net and its solver."""
    (folder / "net.prototxt").write_text(net_text(options.net, batch, options.narrow, bool(options.gpu)))
    (folder / "solver.prototxt").write_text(
        f'net: "net.prototxt" {SOLVER} display: {options.display} max_iter: {options.iterations}\n')


def command(runs: Runs, options: argparse.Namespace) -> list[str]:
    """What trains at a limit."""
    limited = [] if runs.limit == "none" else ["-memory", runs.limit, "-placement", options.placement]
    where = ["-gpu", options.gpu] if options.gpu else ["-spill", options.spill] if limited else []
    return [sys.executable, "-m", "scaffe", "train", "-solver", "solver.prototxt", "-threads", str(options.threads),
            *limited, *where]


def run_in_turns(folder: Path, every: list[Runs], options: argparse.Namespace) -> None:
    """One run of each, all at once, in turns; what they measured is added."""
    turns = list[Turn]()
    try:
        for runs in every:
            turns.append(Turn(command(runs, options), folder))
            turns[-1].go(WARM_UP + 1)
        for _ in range((options.iterations - WARM_UP - 1) // options.in_turns):
            for runs, turn in zip(every, turns, strict=True):
                runs.paces += turn.go(options.in_turns)[1:]
        for runs, turn in zip(every, turns, strict=True):
            runs.peak_bytes, runs.n_faults = turn.end()
            runs.moved = moved(turn.text)
    finally:
        for turn in turns:
            turn.kill()


def moved(text: str) -> str:
    """What a run says of its moves."""
    return " ".join(f"{a} moved, waited {b} s, again {c} s" for a, b, c in MOVED.findall(text))


def run(folder: Path, runs: Runs, options: argparse.Namespace) -> None:
    """One run; what it measured is added."""
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command(runs, options), cwd=folder, stdout=out, stderr=out)
        _, status, used = os.wait4(process.pid, 0)
    text = log.read_text()
    if status:
        raise SystemExit(f"-memory {runs.limit}: {text.strip().splitlines()[-1]}")
    runs.paces += [float(pace) for number, pace in PACE.findall(text) if int(number) >= WARM_UP + options.display]
    runs.peak_bytes = max(runs.peak_bytes, used.ru_maxrss * 1024)
    runs.n_faults = used.ru_minflt
    runs.moved = moved(text)


def save(folder: Path, net: str, batch: int) -> Path:
    """The net's weights, and images drawn at random, for the peer."""
    from compute import Ours, load_kernels  # loads the net's kernels, which no other process here needs

    path, rng = folder / "net.npz", np.random.default_rng(1)
    ours = Ours(net, 1, load_kernels(1))
    shape = ours.batch["data"].shape[1:]
    ours.batch = {"data": rng.standard_normal((batch, *shape), np.float32), "label": rng.integers(0, 10, batch)}
    ours.save(path)
    return path


def first_to_end() -> None:
    """Ask the system to end this process before others where memory is out."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def peer(folder: Path, options: argparse.Namespace, batch: int) -> str:
    """PyTorch's images a second and peak, or how its process ended."""
    path = save(folder, options.net, batch)
    steps = "".join(f"plain {n}\n" for n in (1, options.iterations - WARM_UP - 1))
    process = subprocess.Popen([options.peer, str(PEER), options.net, str(options.threads), str(path)], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=first_to_end)
    try:
        process.stdin.write(steps)  # type: ignore[union-attr]
        process.stdin.close()  # type: ignore[union-attr]
        seconds = [json.loads(line).get("seconds", 0.0) for line in process.stdout]  # type: ignore[union-attr]
    finally:
        _, status, used = os.wait4(process.pid, 0)
    took = f"peak {used.ru_maxrss * 1024 / 1e6:.0f} MB"
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}, {took}"
    return f"{batch * (options.iterations - WARM_UP - 1) / seconds[-1]:.2f} images/s, {took}"


def show(every: list[Runs], options: argparse.Namespace, batch: int) -> None:
    """Print the table, and keep it if asked."""
    note = f"{options.net}, {batch} images, {options.threads} thread(s), placement {options.placement}."
    columns = ("limit", "images/s", "of the first", "peak, MB", "page faults", "moves of a run")
    variant = f"{options.net.replace('_', '-')}-{batch}-{options.placement}"
    with Figures("memory", columns, note, options.keep, variant=variant) as table:
        for runs in every:
            pace = median(runs.paces)
            table.add(runs.limit, Sample([batch * one for one in runs.paces]), pace / median(every[0].paces),
                      runs.peak_bytes / 1e6, runs.n_faults, runs.moved)


def main() -> None:
    """Run the benchmark."""
    if sys.argv[1:2] == ["bars"]:
        raise SystemExit(bars.main(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net", choices=sorted(ARCHITECTURES))
    parser.add_argument("-batch", type=int, default=0)
    parser.add_argument("-limits", default="none,60%,38%")
    parser.add_argument("-placement", default="auto")
    parser.add_argument("-spill", default=".")
    parser.add_argument("-iterations", type=int, default=8)
    parser.add_argument("-rounds", type=int, default=2)
    parser.add_argument("-in_turns", type=int, default=0, metavar="N", help="iterations of a turn, 2 at least")
    parser.add_argument("-threads", type=int, default=1)
    parser.add_argument("-narrow", type=int, default=1, metavar="N", help="layers have an N-th of their outputs")
    parser.add_argument("-gpu", default="", metavar="N", help="train on this GPU")
    parser.add_argument("-display", type=int, default=1, metavar="N", help="iterations between two looks at the loss")
    parser.add_argument("-peer", help="a Python that has torch")
    add_flag(parser)
    options = parser.parse_args()
    if options.iterations < WARM_UP + 2:
        parser.error(f"-iterations must be {WARM_UP + 2} at least, since the first {WARM_UP + 1} are not measured")
    if options.in_turns and not 1 < options.in_turns < options.iterations - WARM_UP:
        parser.error(f"-in_turns must be from 2 to the {options.iterations - WARM_UP - 1} iterations that are measured")
    options.spill = str(Path(options.spill).resolve())
    batch = options.batch or BATCHES[options.net]
    every = [Runs(limit) for limit in options.limits.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        files(Path(folder), options, batch)
        for _ in range(options.rounds):
            if options.in_turns:
                run_in_turns(Path(folder), every, options)
                continue
            for runs in every:
                run(Path(folder), runs, options)
    show(every, options, batch)
    if options.peer:
        with tempfile.TemporaryDirectory() as folder:
            print(f"PyTorch: {peer(Path(folder), options, batch)}")


if __name__ == "__main__":
    main()
