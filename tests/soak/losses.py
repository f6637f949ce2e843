"""Ranks are killed at random, and training goes on: python -m tests.soak.losses [--kills 50] [--ranks 2,4,8] [...].

A row for each strategy and number of ranks: kills, seconds from each to the line that says how many go on, the
accuracy at the end beside those of undisturbed runs with other seeds, and what went wrong. Ranks die by kinds
(tests/soak/deaths.py), in turn, one after another in one run where there are several. All cells grow alike, so that a
soak may be stopped at any time; with the same --log it goes on from there. --minutes ends it.
A strategy may have flags, and numbers of ranks of its own: --strategies "sc-rs,ssp -servers 1:2/4,ssp -servers 2:8".
Where others use the disk, too, TMPDIR=/dev/shm keeps snapshots from waiting for it. --table prints the rows of
docs/reliability.md from a --log; --keep is a folder for what runs said in which something went wrong or took long.
`make soak` does a few.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from scaffe.data.convert.archives import convert_mnist
from tests.scaffe.runs import EXAMPLE
from tests.soak.deaths import disturb, kinds_for, variables
from tests.soak.doomed_run import GO_ON, HANGS_AFTER_SECONDS, DoomedRun
from tests.soak.loss_log import UNDISTURBED, Log, Outcome, depends_on_nodes
from tests.soak.loss_table import rows

STRATEGIES = ("sc-b", "sc-ob", "sc-obr", "sc-rs", "ssp", "downpour")
LONG_SECONDS = 2.0


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
    seconds = [when - max((kill for kill in died if kill < when), default=when) for when in run.times_of(GO_ON)]
    found = run.accuracies()
    return Outcome(len(died), len(run.times_of("have come in")), int(not found), seconds, found,
                   said=run.stamped(died) if max(seconds, default=0) > LONG_SECONDS else "")


def undisturbed(home: Path, strategy: str, n_ranks: int, kind: str, seed: int) -> Outcome:
    """A run that nobody disturbs, on the nodes that runs of a kind have."""
    run = DoomedRun(home, strategy, n_ranks, seed, **variables(kind, n_ranks))
    if said := run.ended():
        return Outcome(wrong=[f"{strategy} on {n_ranks} ranks, undisturbed: {said}"])
    return Outcome(accuracies=run.accuracies())


def main() -> int:
    """Measures; returns 1 where anything went wrong."""
    options = _options()
    log = Log(options.table or options.log)
    if not options.table:
        print(f"seed {options.seed}", flush=True)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            home, end = make_home(Path(name)), time.monotonic() + 60 * options.minutes
            while time.monotonic() < end and _next(home, log, options):
                pass
    print(*rows(log.runs), sep="\n")
    wrong = [line for run in log.runs for line in run["wrong"]]
    print(*wrong, sep="\n")
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="a strategy and number of ranks")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--kinds", default="", help="as in tests/soak/deaths.py; default: all")
    parser.add_argument("--on-loss", default="shrink", help="the value of -on_rank_loss")
    parser.add_argument("--seeds", type=int, default=5, help="undisturbed runs to compare with")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--log", default="", help="a file that has, and gets, a line of JSON for each run")
    parser.add_argument("--table", default="", help="such a file: print its rows")
    parser.add_argument("--keep", default="", help="a folder, see above")
    return parser.parse_args()


def _next(home: Path, log: Log, options: argparse.Namespace) -> bool:
    """One run more, of the cell that has the least of what it shall have; False where all have all."""
    share, strategy, n_ranks = min((log.n_killed(*cell) / options.kills, *cell) for cell in _cells(options))
    kind, n_wanted = _owed(log, strategy, n_ranks, options, share)
    if kind is None and share >= 1:
        return False
    if kind is not None:
        found = undisturbed(home, strategy, n_ranks, kind.removeprefix(UNDISTURBED).strip(), n_wanted)
        log.note(strategy, n_ranks, kind, found)
        return True
    kinds = options.kinds.split(",") if options.kinds else kinds_for(n_ranks)
    turn = log.n_disturbed(strategy, n_ranks)
    chance = random.Random(f"{options.seed} {strategy} {n_ranks} {turn}")
    found = disturbed(home, strategy, n_ranks, chance, kinds[turn % len(kinds)], options.on_loss)
    log.note(strategy, n_ranks, kinds[turn % len(kinds)], found, options.keep)
    return True


def _cells(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    for word in options.strategies.split(","):
        strategy, _, ranks = word.partition(":")
        yield from ((strategy, int(n_ranks)) for n_ranks in (ranks.split("/") if ranks else options.ranks.split(",")))


def _owed(log: Log, strategy: str, n_ranks: int, options: argparse.Namespace, share: float) -> tuple[str | None, int]:
    """The undisturbed run that is to be made before the cell's next kill, and its seed; None for none."""
    for kind in (UNDISTURBED, *([f"{UNDISTURBED} node"] * depends_on_nodes(strategy))):
        n_made = log.n_of(strategy, n_ranks, kind)
        if n_made < min(share + 1e-9, 1) * options.seeds:
            return kind, n_made
    return None, 0


if __name__ == "__main__":
    sys.exit(main())
