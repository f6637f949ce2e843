"""Where arrays that live for part of an iteration lie in one piece of memory: a pure plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGN_BYTES = 256  # a device's own granularity, and a multiple of every vector's


@dataclass(frozen=True)
class Lifetime:
    """An array and the steps of an iteration in which its contents matter.

    Attributes:
        n_bytes: its length.
        first, last: steps, inclusive.
    """

    n_bytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both live in some step."""
        return self.first <= other.last and other.first <= self.last


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Offsets in bytes such that no two arrays that live at once overlap, and the bytes needed in all.

    Largest first, each as low as it fits among those that it meets (best fit would save little and reads worse); the
    result is at least ``lower_bound`` and for the nets in benchmarks/ within a tenth of it.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    for index in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].n_bytes):
        wanted, start = aligned(lifetimes[index].n_bytes), 0
        for other in sorted((i for i in placed if lifetimes[i].meets(lifetimes[index])), key=lambda i: offsets[i]):
            if offsets[other] >= start + wanted:
                break
            start = max(start, offsets[other] + aligned(lifetimes[other].n_bytes))
        offsets[index] = start
        placed.append(index)
    return offsets, max((o + aligned(x.n_bytes) for o, x in zip(offsets, lifetimes, strict=True)), default=0)


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Bytes that live at once in the fullest step: no plan needs less."""
    return max((sum(aligned(x.n_bytes) for x in lifetimes if x.first <= step <= x.last)
                for step in {x.first for x in lifetimes}), default=0)


def aligned(n_bytes: int) -> int:
    """Bytes that an array of that length takes in the arena."""
    return -(-n_bytes // ALIGN_BYTES) * ALIGN_BYTES
