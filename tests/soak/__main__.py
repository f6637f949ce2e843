"""Ten minutes of bad luck: python -m tests.soak [--seconds 600] [--seed N]. What it must show: docs/reliability.md.

Runs are killed, stopped, signalled, denied room on the disk and their readers, one to four times each, at moments that
the seed chooses; then each goes on undisturbed and must end with the bits of a run that nobody disturbed. Between them
jobs of random collectives are checked against NumPy, and ranks are killed of jobs that go on without them.
"""

from __future__ import annotations

import argparse
import collections
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mpirun import mpirun
from tests.soak import losses
from tests.soak.deaths import kinds_for
from tests.soak.luck import KINDS
from tests.soak.training import Training, make_database

HANGS_AFTER_SECONDS = 120


def main() -> int:
    """Soak; returns 1 where anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance, end = random.Random(options.seed), time.monotonic() + options.seconds
    counts: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        database = make_database(Path(name))
        references: dict[int, bytes] = {}
        number = 0
        while time.monotonic() < end or number < 2:
            number += 1
            turn = {0: _collectives, 3: _losses}.get(number % 6, _training)
            said = turn(Path(name), database, references, chance, counts)
            if said:
                wrong.append(f"turn {number}: {said}")
                print(wrong[-1], flush=True)
    for what, count in sorted(counts.items()):
        print(f"{count:8d}  {what}")
    print(f"{len(wrong):8d}  went wrong")
    return 1 if wrong else 0


def _training(home: Path, database: Path, references: dict[int, bytes], chance: random.Random,
              counts: collections.Counter[str]) -> str:
    n_ranks = chance.choice((1, 1, 2, 3))
    if n_ranks not in references:
        references[n_ranks] = Training(home, database, n_ranks).finish(HANGS_AFTER_SECONDS)
    training = Training(home, database, n_ranks)
    history = [f"{n_ranks} ranks"]
    try:
        for _ in range(chance.randint(1, 4)):
            kind = chance.choice(list(KINDS))
            history.append(kind)
            counts[f"disturbed by {kind}"] += 1
            with training.started(kind) as process:
                KINDS[kind](process, chance)
                training.wait(process, HANGS_AFTER_SECONDS)
        counts["trainings ended"] += 1
        same = training.finish(HANGS_AFTER_SECONDS) == references[n_ranks]
        wrong = training.leftovers() or ("" if same else "other bits")
        return f"{'; '.join(history)}: {wrong}" if wrong else ""
    except (AssertionError, subprocess.SubprocessError) as error:
        return f"{'; '.join(history)}: {error}"


def _losses(home: Path, database: Path, references: dict[int, bytes], chance: random.Random,
            counts: collections.Counter[str]) -> str:
    strategy, n_ranks = chance.choice(losses.STRATEGIES), chance.choice((2, 3, 4))
    kind = chance.choice(kinds_for(n_ranks))
    found = losses.disturbed(losses.make_home(home), strategy, n_ranks, chance, kind)
    counts["ranks killed, without which the others went on"] += found.killed
    return "; ".join(found.wrong)


def _collectives(home: Path, database: Path, references: dict[int, bytes], chance: random.Random,
                 counts: collections.Counter[str]) -> str:
    n_ranks, seed, n_calls = chance.choice((2, 3, 5)), chance.randrange(2**31), 300
    command = [*mpirun(n_ranks), sys.executable, "-m", "tests.soak.collectives", str(seed), str(n_calls)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_SECONDS)
    except subprocess.TimeoutExpired:
        return f"collectives, {n_ranks} ranks, seed {seed}: hangs"
    counts["collective calls against NumPy"] += n_calls
    return "" if done.returncode == 0 else f"collectives, {n_ranks} ranks, seed {seed}: {done.stderr[-2000:]}"


if __name__ == "__main__":
    sys.exit(main())
