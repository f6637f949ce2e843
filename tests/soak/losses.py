"""Ranks are killed at random, and training goes on: python -m tests.soak.losses [--kills 50] [--ranks 2,4,8] [...].

A line for each strategy and number of ranks: kills, seconds from each to the line that says how many go on, the
accuracy at the end beside those of undisturbed runs with other seeds, and what went wrong. Ranks die by kinds
(tests/soak/deaths.py), in turn: any, two at once, all but one, the root, a whole node, stopped beyond the deadline.
A strategy may have flags: --strategies "sc-rs,ssp -servers 1". --table prints docs/reliability.md's rows from a --log.
`make soak` does a few.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scaffe.data.convert.mnist import convert_mnist
from tests.scaffe.runs import EXAMPLE
from tests.soak.deaths import STOPPED_SECONDS, disturb, kinds_for, variables
from tests.soak.doomed_run import GO_ON, HANGS_AFTER_SECONDS, DoomedRun

STRATEGIES = ("sc-b", "sc-ob", "sc-obr", "sc-rs", "ssp", "downpour")
UNDISTURBED = "undisturbed"


@dataclass
class Outcome:
    """Of one run or, added up, of several.

    Attributes:
        killed: ranks killed or stopped while it trained.
        came: how often ranks came in for lost ones.
        seconds: from a kill (from the deadline, for a rank that was stopped) to the line that says how many ranks go
            on; one for each recovery.
        accuracies: at the end.
        n_unmanned: runs of which only servers were left, so that they ended with a line.
        wrong: what went wrong.
    """

    killed: int = 0
    came: int = 0
    n_unmanned: int = 0
    seconds: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Counts another run."""
        self.killed += other.killed
        self.came += other.came
        self.n_unmanned += other.n_unmanned
        self.seconds += other.seconds
        self.accuracies += other.accuracies
        self.wrong += other.wrong


def make_home(home: Path) -> Path:
    """The databases that all runs read."""
    for stem, name in (("train", "train"), ("t10k", "test")):
        if not (home / name).exists():
            convert_mnist(str(EXAMPLE / f"{stem}-images-idx3-ubyte.gz"), str(EXAMPLE / f"{stem}-labels-idx1-ubyte.gz"),
                          str(home / name), False)
    return home


def disturbed(home: Path, strategy: str, n_ranks: int, chance: random.Random, kind: str = "any",
              on_loss: str = "shrink") -> Outcome:
    """One run in which one rank or more die, at moments that chance chooses; one at least is left."""
    run = DoomedRun(home, strategy, n_ranks, chance.randrange(1 << 20), on_loss, **variables(kind, n_ranks))
    run.wait_for("Training on", HANGS_AFTER_SECONDS)
    died = disturb(run, kind, n_ranks, chance)
    if said := run.ended():
        return Outcome(len(died), wrong=[f"{strategy} on {n_ranks} ranks, {kind}, killed {len(died)}: {said}"])
    late = STOPPED_SECONDS if kind == "stopped" else 0.0
    seconds = [when - max((kill for kill in died if kill < when), default=when) - late for when in run.times_of(GO_ON)]
    found = run.accuracies()
    return Outcome(len(died), len(run.times_of("have come in")), int(not found), seconds, found)


def undisturbed(home: Path, strategy: str, n_ranks: int, n_runs: int) -> list[float]:
    """The accuracies of runs with other seeds that nobody disturbs."""
    found = []
    for seed in range(n_runs):
        run = DoomedRun(home, strategy, n_ranks, seed)
        if said := run.ended():
            raise RuntimeError(f"an undisturbed run: {said}")
        found += run.accuracies()
    return found


def main() -> int:
    """Measures; returns 1 where anything went wrong."""
    options = _options()
    if options.table:
        print(*rows([json.loads(line) for line in Path(options.table).read_text().splitlines()]), sep="\n")
        return 0
    is_right = True
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = make_home(Path(name))
        for n_ranks in map(int, options.ranks.split(",")):
            for strategy in options.strategies.split(","):
                total = _measure(home, strategy, n_ranks, options)
                print(*total.wrong, sep="\n", flush=True)
                is_right &= not total.wrong
    return 0 if is_right else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="a strategy and number of ranks")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--kinds", default="", help="as in tests/soak/deaths.py; default: all")
    parser.add_argument("--on-loss", default="shrink", help="the value of -on_rank_loss")
    parser.add_argument("--seeds", type=int, default=5, help="undisturbed runs to compare with")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--log", default="", help="a file that gets a line of JSON for each run")
    parser.add_argument("--table", default="", help="such a file: print its rows")
    return parser.parse_args()


def _measure(home: Path, strategy: str, n_ranks: int, options: argparse.Namespace) -> Outcome:
    noted: list[dict[str, Any]] = []

    def note(kind: str, found: Outcome) -> None:
        noted.append({"strategy": strategy, "n_ranks": n_ranks, "kind": kind} | asdict(found))
        if options.log:
            with Path(options.log).open("a") as log:
                log.write(json.dumps(noted[-1]) + "\n")

    note(UNDISTURBED, Outcome(accuracies=undisturbed(home, strategy, n_ranks, options.seeds)))
    kinds = options.kinds.split(",") if options.kinds else kinds_for(n_ranks)
    total, chance, turn = Outcome(), random.Random(f"{options.seed} {strategy} {n_ranks}"), 0
    while total.killed < options.kills and len(total.wrong) < 3:
        kind, turn = kinds[turn % len(kinds)], turn + 1
        found = disturbed(home, strategy, n_ranks, chance, kind, options.on_loss)
        total.add(found)
        note(kind, found)
    print(*rows(noted), sep="\n", flush=True)
    return total


def rows(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A table's rows: runs, killed or stopped, others came in, went on, nobody left to train, hung, ended otherwise,
    seconds lost (median and longest), accuracies, undisturbed ones.

    Args:
        runs: the lines of a log.
    """
    for cell in dict.fromkeys((run["strategy"], run["n_ranks"]) for run in runs):
        of_cell = [run for run in runs if (run["strategy"], run["n_ranks"]) == cell]
        others = [accuracy for run in of_cell if run["kind"] == UNDISTURBED for accuracy in run["accuracies"]]
        total = Outcome()
        for run in (killed := [run for run in of_cell if run["kind"] != UNDISTURBED]):
            total.add(Outcome(**{key: value for key, value in run.items() if key in Outcome.__dataclass_fields__}))
        n_hung = sum(": hangs" in wrong for wrong in total.wrong)
        seconds = total.seconds or [0.0]
        yield (f"| `{cell[0]}` | {cell[1]} | {len(killed)} | {total.killed} | {total.came} | {len(total.accuracies)} | "
               f"{total.n_unmanned} | {n_hung} | {len(total.wrong) - n_hung} | {statistics.median(seconds):.2f} "
               f"({max(seconds):.2f}) | {_range(total.accuracies)} | {_range(others)} |")


def _range(found: list[float]) -> str:
    return f"{min(found):.3f} to {max(found):.3f}" if found else ""


if __name__ == "__main__":
    sys.exit(main())
