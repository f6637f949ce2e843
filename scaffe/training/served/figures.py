"""What asynchrony does to a run: how old the parameters were that workers computed with, and who waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Figures:
    """What one worker has done.

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


def summary(workers: Sequence[Figures], shards: Sequence[tuple[int, int]]) -> list[str]:
    """What the log says at the end.

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
