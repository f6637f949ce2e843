"""Options of strategies on a parameter server, and their staleness statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scaffe.flags import MOST_RANKS, Flags, whole

SLACK = whole(0, inf=math.inf)  # iterations


@dataclass(frozen=True)
class Consistency:
    """The consistency that the server keeps.

    Attributes:
        slack: iterations that a worker may be ahead of the slowest; math.inf for no limit.
        n_servers: how many ranks hold shards alone; with 0 every rank is a worker and holds a shard.
        decays: whether the shards add the weight decay to the gradients, and make means of the sums of ``iter_size``
            passes; if not, the workers have done both.
        keeps_copies: whether shards' histories have second copies on other nodes.
    """

    slack: float
    n_servers: int
    decays: bool = True
    keeps_copies: bool = False

    def n_summed(self, n_workers: int) -> int:
        """How many workers' gradients one update of the parameters sums: all with slack 0, else one."""
        return 1 if self.slack else n_workers


def add_servers_flag(flags: Flags) -> None:
    """Add ``-servers``."""
    flags.flag("servers", 0, "the last N ranks have no net", kind=whole(0, MOST_RANKS))


@dataclass
class StalenessStatistics:
    """What one worker has pulled and pushed, how stale it was, and how long it waited.

    Attributes:
        n_pulls, n_pushes: tables read from the shards, and gradients handed to them.
        n_messages: shards that pushes went to, summed over the pushes.
        staleness: clocks by which the slowest worker was behind the reader, summed over the pulls.
        stalest: the largest of them.
        computing, waiting: seconds in passes and data, and seconds waiting for parameters and for buffers.
        elapsed: seconds since the start, tests and snapshots left out.
    """

    n_pulls: int = 0
    n_pushes: int = 0
    staleness: int = 0
    stalest: int = 0
    computing: float = 0.0
    waiting: float = 0.0
    elapsed: float = 0.0

    def pulled(self, staleness: int) -> None:
        """Count a pull of parameters that were so many clocks old."""
        self.n_pulls += 1
        self.staleness += staleness
        self.stalest = max(self.stalest, staleness)

    def pushed(self) -> None:
        """Count a push."""
        self.n_pushes += 1


def summary(workers: Sequence[StalenessStatistics], shards: Sequence[tuple[int, int]]) -> list[str]:
    """The statistics as lines of the log.

    Args:
        workers: every worker's figures.
        shards: for each shard how many pulls and pushes it has taken.
    """
    n_pulls, n_pushes = sum(w.n_pulls for w in workers), sum(w.n_pushes for w in workers)
    elapsed = max(max(w.elapsed for w in workers), 1e-9)
    stale = sum(w.staleness for w in workers) / max(n_pulls, 1)
    waiting = sum(w.waiting for w in workers) / max(sum(w.elapsed for w in workers), 1e-9)
    slowest = max(range(len(workers)), key=lambda i: workers[i].computing)
    mean = sum(w.computing for w in workers) / len(workers)
    return [f"Staleness: {stale:.2f} clocks on average, {max(w.stalest for w in workers)} at most; "
            f"{waiting:.1%} of the workers' time waiting",
            f"Server: {n_pulls / elapsed:.0f} pulls and {n_pushes / elapsed:.0f} pushes a second; slowest worker "
            f"{slowest}, computing for {workers[slowest].computing:.1f} s, the mean is {mean:.1f} s",
            "Shards, pulls and pushes a second: "
            + ", ".join(f"{pulls / elapsed:.0f} and {pushes / elapsed:.0f}" for pulls, pushes in shards)]
