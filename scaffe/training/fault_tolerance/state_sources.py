"""Which rank gives which part of the parameters and histories after a loss; no MPI here."""

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
        is_old: whether it is whole, but the parameters are as the giver's node has pulled them last, and the histories
            a second copy that may be some updates old.
    """

    interval: slice
    giver: int
    is_whole: bool
    is_old: bool = False


def tolerates_rank_loss(options: Any) -> bool:
    """Whether the options ask training to continue when ranks are lost."""
    return bool(getattr(options, "on_rank_loss", "stop") != "stop")


def keeps_copies(options: Any) -> bool:
    """Whether the options ask for second copies."""
    return tolerates_rank_loss(options) and bool(getattr(options, "history_copies", 0))


def neighbours(nodes: Sequence[Sequence[int]]) -> list[int]:
    """For each rank the one that keeps a second copy of what it owns: on the next node, where there is another one.

    Args:
        nodes: the ranks of each node, ascending.
    """
    if len(nodes) == 1:
        return [(rank + 1) % len(nodes[0]) for rank in nodes[0]]
    found = {rank: following[place % len(following)]
             for node, following in zip(nodes, [*nodes[1:], nodes[0]], strict=True) for place, rank in enumerate(node)}
    return [found[rank] for rank in sorted(found)]


def parts(owned_by: Callable[[int], Sequence[slice]], n_ranks: int, left: Collection[int],
          copied_to: Sequence[int] = ()) -> list[Part]:
    """The parts that make up parameters and histories.

    Args:
        owned_by: the intervals that a rank owned.
        n_ranks: how many there were.
        left: those that are left; not empty.
        copied_to: the rank that keeps a copy of what each rank owns; empty where none does.

    Returns:
        One part for each interval that is not empty, in the ranks' order.
    """
    found = []
    for rank in range(n_ranks):
        holders = [rank, *copied_to[rank : rank + 1]]
        holder = next((holder for holder in holders if holder in left), None)
        for interval in owned_by(rank):
            if interval.start < interval.stop:
                found.append(Part(interval, min(left) if holder is None else holder, holder is not None))
    return found
