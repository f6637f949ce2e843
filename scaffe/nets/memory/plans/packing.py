"""Offsets in one memory for arrays that are there at certain times: dynamic storage allocation."""

from __future__ import annotations

import random
from collections.abc import Sequence

from scaffe.nets.arena import lowest

Intervals = Sequence[tuple[int, int]]

MOST_TRIALS, MOST_VISITS = 400, 2_000_000  # orders that are tried, and those times pairs of arrays that meet


def packed(lengths: Sequence[int], intervals: Sequence[Intervals], room: int) -> tuple[list[int], int]:
    """Place arrays one after another, each at the lowest offset at which it meets nobody: the largest first; if that
    takes too much, in orders in which one that ends last, or any other one, comes earlier (random descent, equal for
    equal inputs).

    Args:
        lengths: of the arrays, in bytes.
        intervals: of each, the steps in which it is there, first and last inclusive.
        room: in bytes: no better order is looked for once all fits.

    Returns:
        offsets, 0 for those that are never there, and the length of all.
    """
    there = [number for number, each in enumerate(intervals) if each]
    met = {i: [j for j in there if i != j and _meet(intervals[i], intervals[j])] for i in there}
    order, draw = sorted(there, key=lambda i: -lengths[i]), random.Random(0)
    offsets, n_bytes = lowest(order, lengths, met)
    for _ in range(min(MOST_TRIALS, MOST_VISITS // max(1, sum(map(len, met.values()))))):
        if n_bytes <= room:
            break
        last = next(i for i, number in enumerate(order) if offsets[number] + lengths[number] == n_bytes)
        chosen, trial = draw.choice((last, draw.randrange(len(order)))), list(order)
        trial.insert(draw.randint(0, chosen), trial.pop(chosen))
        found = lowest(trial, lengths, met)
        if found[1] <= n_bytes:
            order, (offsets, n_bytes) = trial, found
    return offsets, n_bytes


def _meet(mine: Intervals, others: Intervals) -> bool:
    """Whether one of these intervals and one of those have a step in common."""
    return any(first <= until and since <= final for first, final in mine for since, until in others)
