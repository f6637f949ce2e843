"""Ranks are killed while a job starts: python -m tests.soak.starts [--kills 200] [--seed S] [...].

Each run has 2 to 4 ranks, and one of them, sometimes another one too, gets SIGKILL at a random moment after they exist,
in the way that MODES has in turn. The job must then end, or go on without them, within --seconds, and leave no process.
A run that ends without a word about the loss is counted beside. The exit code is 1 where any hung or left a process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.mpirun import mpirun
from tests.soak.doomed_run import GO_ON, DoomedRun
from tests.soak.losses import make_home

FT = ("--with-ft", "ulfm")
MODES = {"without": ((), "sc-obr", "stop"), "stop": (FT, "sc-obr", "stop"), "shrink": (FT, "sc-rs", "shrink"),
         "server": (FT, "ssp -servers 1", "shrink"), "replace": (FT, "sc-b", "replace"),
         "memory": (FT, "sc-b -memory 64MB", "shrink")}
"""The launcher's options, the strategy with its flags, and -on_rank_loss."""
TWICE = 0.3
"""How often another one is killed."""
EXIST_SECONDS, CHILDREN_SECONDS, SHORT_SECONDS = 60, 10, 0.02
SAID = r"lost|signal|terminated|killed|while MPI|ABORT|aborted"
HUNG, WENT_ON, ENDED, SILENT, LEFT = "hung", "went on", "ended", "ended without a word", "left a process"
WRONG = HUNG, LEFT


class Found(NamedTuple):
    """What became of a run.

    Attributes:
        what: HUNG, WENT_ON and so on.
        seconds: from the last kill to that.
        said: all that it has said, with the moments of the kills.
    """

    what: str
    seconds: float
    said: str


def disturbed(home: Path, mode: str, n_ranks: int, chance: random.Random, latest: float, patience: float) -> Found:
    """One run of which one rank, or two, are killed while it starts.

    Args:
        home: where the databases are.
        mode: of MODES.
        n_ranks: how many.
        chance: chooses the moments and the ranks.
        latest: seconds after which no rank is killed any longer.
        patience: seconds after which a run hangs.
    """
    options, strategy, on_loss = MODES[mode]
    program, *words = mpirun(n_ranks)
    run = DoomedRun(home, strategy, [program, *options, *words], chance.randrange(1 << 20), on_loss,
                    PRTE_MCA_prte_tmpdir_base=str(home))
    try:
        until = time.monotonic() + EXIST_SECONDS
        while len(run.alive()) < n_ranks and not run.is_over() and time.monotonic() < until:
            time.sleep(SHORT_SECONDS)
        died = _kill(run, chance, latest)
        return _outcome(run, died, patience)
    finally:
        _end(run)


def _kill(run: DoomedRun, chance: random.Random, latest: float) -> list[float]:
    n_kills, begun, died = 1 + (chance.random() < TWICE), time.monotonic(), list[float]()
    for moment in sorted(chance.uniform(0, latest) for _ in range(n_kills)):
        while (left := begun + moment - time.monotonic()) > 0 and run.process.poll() is None:
            time.sleep(min(left, SHORT_SECONDS))
        if len(alive := run.alive()) < 2 or run.is_over():
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(alive), signal.SIGKILL)
            died.append(time.monotonic())
    return died or [time.monotonic()]


def _outcome(run: DoomedRun, died: list[float], patience: float) -> Found:
    """Waits until the run has ended or gone on."""
    while (seconds := time.monotonic() - died[-1]) < patience:
        if run.process.poll() is not None:
            what = ENDED if re.search(SAID, run.text()) or run.process.returncode == 0 else SILENT
            return Found(what if _is_gone(run) else LEFT, seconds, run.stamped(died))
        if any(when > died[-1] for when in run.times_of(GO_ON)) and _progress(run, run.times_of(GO_ON)[-1]):
            return Found(WENT_ON, seconds, run.stamped(died))
        time.sleep(SHORT_SECONDS)
    done = run.times_of("Optimization Done")
    return Found(WENT_ON if done else HUNG, seconds, run.stamped(died))


def _progress(run: DoomedRun, since: float) -> bool:
    return any(when > since for when in run.times_of(r"Iteration \d+ \(|Optimization Done"))


def _is_gone(run: DoomedRun) -> bool:
    """Whether nothing is left of a run that has ended: neither ranks nor what watched over their start."""
    until = time.monotonic() + CHILDREN_SECONDS
    while (left := [*run.alive(), *watches(run.process.pid)]) and time.monotonic() < until:
        time.sleep(SHORT_SECONDS)
    return not left


def watches(launcher: int) -> list[int]:
    """The processes that watch over the start of a launcher's ranks."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if any(b"start_watch" in word for word in words) and str(launcher).encode() in words:
                found.append(int(path.parent.name))
    return found


def _end(run: DoomedRun) -> None:
    """What is left is killed; threads of ranks that hang print where they are."""
    for pid in [*run.alive(), run.process.pid] if run.process.poll() is None else run.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.process.wait(60)


def main() -> int:
    """Kills; returns 1 where anything hung or was left."""
    options = _options()
    print(f"seed {options.seed}", flush=True)
    counts, longest, is_wrong = Counter[tuple[str, str]](), Counter[str](), False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = make_home(Path(name))
        for turn in range(options.begin, options.kills):
            chance = random.Random(f"{options.seed} {turn}")
            mode, n_ranks = options.modes[turn % len(options.modes)], chance.randint(2, 4)
            found = disturbed(home, mode, n_ranks, chance, options.latest, options.seconds)
            counts[mode, found.what] += 1
            longest[mode] = max(longest[mode], found.seconds)  # type: ignore[assignment]
            is_wrong |= found.what in WRONG
            if found.what in WRONG or found.what == SILENT or not options.silent:
                print(f"{turn}: {mode} on {n_ranks} ranks {found.what} after {found.seconds:.1f} s", flush=True)
            if options.keep:
                name = f"{options.seed}-{turn}-{mode}-{found.what.replace(' ', '_')}-{found.seconds:.0f}.log"
                (Path(options.keep) / name).write_text(found.said)
    for mode in options.modes:
        row = ", ".join(f"{what} {n}" for (of, what), n in sorted(counts.items()) if of == mode)
        print(f"{mode}: {row}; longest {longest[mode]:.1f} s")
    return int(is_wrong)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="runs in which a rank, or two, are killed")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--begin", type=int, default=0, help="the first one, to repeat some of a seed's")
    parser.add_argument("--latest", type=float, default=3.0, help="seconds in which ranks are killed")
    parser.add_argument("--seconds", type=float, default=10.0, help="after these a run hangs")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES), help=", ".join(MODES))
    parser.add_argument("--silent", action="store_true", help="lines only for what is not as it should be")
    parser.add_argument("--keep", default="", help="a folder for what the runs say")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
