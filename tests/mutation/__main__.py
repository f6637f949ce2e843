"""Runs the tests on every mutant and lists those that no test noticed; the exit code is 1 where there are any."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.collectives.test_mpi import ENVIRONMENT
from tests.mpirun import mpirun
from tests.mutation import __doc__ as ABOUT
from tests.mutation.mutants import MUTANTS, ROOT, Mutant, outdated

SITE = Path(__file__).with_name("site")


def command(tests: tuple[str, ...]) -> list[str]:
    """The tests' command line: on two ranks, or on none."""
    kind, *arguments = tests
    launcher = mpirun(2) if kind == "mpi" else []
    return [*launcher, sys.executable, "-m", "pytest", *(["--with-mpi"] if launcher else []), "-x", "-q", *arguments]


def passes(tests: tuple[str, ...], mutant: Mutant | None, seconds: float) -> bool:
    """Whether the tests pass, on a mutant or on what is there."""
    changed = {} if mutant is None else {"MUTANT": json.dumps([mutant.path, mutant.old, mutant.new])}
    paths = os.pathsep.join([str(SITE), str(ROOT)])
    environment = os.environ | ENVIRONMENT | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"} | changed
    process = subprocess.Popen(command(tests), cwd=ROOT, env=environment, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:  # a wait that never ends is noticed too
        os.killpg(process.pid, 9)
        process.wait()
        return False


def survivors(only: str, seconds: float) -> list[Mutant]:
    """The mutants that no test noticed, told one by one."""
    if gone := outdated():
        raise SystemExit("these files have no longer what is to be taken out: "
                         + "; ".join(f"{mutant.path}: {mutant.old!r}" for mutant in gone))
    chosen = [mutant for mutant in MUTANTS if only in f"{mutant.path} {mutant.old}"]
    for tests in dict.fromkeys(mutant.tests for mutant in chosen):
        if not passes(tests, None, 3 * seconds):
            raise SystemExit(f"these tests fail as it is: {' '.join(tests)}")
    left = []
    for mutant in chosen:
        start = time.monotonic()
        lives = passes(mutant.tests, mutant, seconds)
        left += [mutant] * lives
        print(f"{'SURVIVES' if lives else 'noticed':8s} {time.monotonic() - start:4.0f} s  {mutant.path}: "
              f"{mutant.old!r} -> {mutant.new!r}", flush=True)
    return left


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="mutants whose path or text has this word")
    parser.add_argument("--seconds", type=float, default=120.0, help="for the tests of one mutant")
    options = parser.parse_args()
    left = survivors(options.only, options.seconds)
    print(f"{len(left)} of the mutants survive")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
