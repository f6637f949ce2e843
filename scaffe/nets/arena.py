"""Offsets in one arena for arrays that are needed for part of an iteration only: a pure plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGN_BYTES = 256  # a device's own granularity, and a multiple of every vector's


@dataclass(frozen=True)
class Lifetime:
    """An array's length and the steps of an iteration in which its contents are needed.

    Attributes:
        n_bytes: the array's length in bytes.
        first, last: the first and the last such step, inclusive.
    """

    n_bytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are needed in some step."""
        return self.first <= other.last and other.first <= self.last


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Place arrays in an arena such that two that are needed in the same step do not overlap.

    Greedy: largest first, each at the lowest offset that fits. Best fit would save little and be harder to read. The
    total is at least ``lower_bound``; for the nets in benchmarks/ it is within a tenth of it.

    Returns:
        each array's offset and the arena's length, both in bytes.
    """
    order = sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].n_bytes)
    met = {i: [j for j, other in enumerate(lifetimes) if i != j and each.meets(other)]
           for i, each in enumerate(lifetimes)}
    return lowest(order, [aligned(each.n_bytes) for each in lifetimes], met)


def lowest(order: Sequence[int], lengths: Sequence[int], met: Mapping[int, Sequence[int]]) -> tuple[list[int], int]:
    """Place arrays one after another, each at the lowest offset at which it overlaps nobody whom it meets.

    Args:
        order: their numbers; those that are left out get offset 0, and take nothing.
        lengths: in bytes.
        met: of each in the order, the others that are there in some step in which it is.

    Returns:
        offsets, and the length of all.
    """
    offsets, n_bytes, placed = [0] * len(lengths), 0, set[int]()
    for number in order:
        start = 0
        for offset, end in sorted((offsets[i], offsets[i] + lengths[i]) for i in met[number] if i in placed):
            if offset >= start + lengths[number]:
                break
            start = max(start, end)
        offsets[number] = start
        n_bytes = max(n_bytes, start + lengths[number])
        placed.add(number)
    return offsets, n_bytes


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Bytes needed at once in the fullest step: no plan can do with fewer."""
    return max((sum(aligned(x.n_bytes) for x in lifetimes if x.first <= step <= x.last)
                for step in {x.first for x in lifetimes}), default=0)


def aligned(n_bytes: int) -> int:
    """The length in bytes rounded up to a multiple of ALIGN_BYTES: what an array takes in the arena."""
    return -(-n_bytes // ALIGN_BYTES) * ALIGN_BYTES
