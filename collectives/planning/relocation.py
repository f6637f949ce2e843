"""Moves a plan from a buffer of its own into pieces of a longer one (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from scaffe.collectives.planning.plan import Plan

Interval = tuple[int, int]


def relocated(plan: Plan, intervals: Sequence[Interval], n_elems: int) -> Plan:
    """Moves a plan's steps to where its elements lie; a step that crosses intervals becomes one step for each.

    The plans of all ranks of a collective have to be moved with intervals of the same lengths, so that both ends of a
    message are cut alike.

    Args:
        plan: on a buffer as long as all intervals together.
        intervals: where its elements lie, in order; they do not overlap.
        n_elems: length of the buffer that the intervals are of.
    """
    places = _Places(intervals)
    steps = tuple(type(step)(step.peer, *piece) for step in plan for piece in places.of(step.start, step.stop))
    return Plan(plan.rank, plan.n_ranks, n_elems, steps)


class _Places:
    def __init__(self, intervals: Sequence[Interval]) -> None:
        ends = list(accumulate(stop - start for start, stop in intervals))
        self._rows = [(end - (stop - start), end, start) for end, (start, stop) in zip(ends, intervals, strict=True)]

    def of(self, start: int, stop: int) -> Iterator[Interval]:
        """The pieces of the longer buffer that elements [start, stop) of the plan's buffer lie in."""
        for first, end, place in self._rows:
            low, high = max(start, first), min(stop, end)
            if low < high:
                yield place + low - first, place + high - first
