"""Who gives which part of the parameters and histories after a loss: pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Part:
    """An interval of the flat buffers, and the rank that gives it.

    Attributes:
        interval: in elements.
        giver: a rank that is left.
        is_whole: whether the giver has the newest parameters and their histories; if not, it has parameters that are at
            most one update old, and no histories.
    """

    interval: slice
    giver: int
    is_whole: bool


def goes_on(options: Any) -> bool:
    """Whether the options ask to go on when ranks are lost."""
    return bool(getattr(options, "on_rank_loss", "stop") != "stop")


def keeps_copies(options: Any) -> bool:
    """Whether the options ask for second copies."""
    return goes_on(options) and bool(getattr(options, "history_copies", 0))


def neighbour(rank: int, n_ranks: int) -> int:
    """The rank that keeps a second copy of what `rank` owns."""
    return (rank + 1) % n_ranks


def parts(owned_by: Callable[[int], Sequence[slice]], n_ranks: int, left: Collection[int],
          has_copies: bool) -> list[Part]:
    """The parts that make up parameters and histories.

    Args:
        owned_by: the intervals that a rank owned.
        n_ranks: how many there were.
        left: those that are left; not empty.
        has_copies: whether each rank's neighbour keeps a copy.

    Returns:
        One part for each interval that is not empty, in the ranks' order.
    """
    found = []
    for rank in range(n_ranks):
        holders = [rank, neighbour(rank, n_ranks)] if has_copies else [rank]
        holder = next((holder for holder in holders if holder in left), None)
        for interval in owned_by(rank):
            if interval.start < interval.stop:
                found.append(Part(interval, min(left) if holder is None else holder, holder is not None))
    return found
