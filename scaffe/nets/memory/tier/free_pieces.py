"""Which pieces of memory that nobody uses an array gets: a pure account."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

MOST_ADDRESS = 1 << 64
Piece = tuple[int, int]
"""Its address, and its length in bytes."""


class FreePieces:
    """Pieces of memory that nobody uses. They are divided, and never joined again.

    The system moves whole units, from a multiple of the unit to another, two to three times as fast as other pieces:
    these are kept together, and an array gets them first, so that what begins with a unit goes on with units.

    Args:
        unit_bytes: the length of a unit.

    Attributes:
        n_bytes: of all of them.
    """

    def __init__(self, unit_bytes: int) -> None:
        self._unit, self.n_bytes = unit_bytes, 0
        self._units: list[tuple[int, int]] = []  # by length
        self._others: list[tuple[int, int]] = []

    def put(self, pieces: Iterable[Piece]) -> None:
        """Add pieces."""
        for start, n_bytes in pieces:
            insort(self._kind(start, n_bytes), (n_bytes, start))
            self.n_bytes += n_bytes

    def take(self, n_bytes: int) -> list[Piece]:
        """Take pieces of so many bytes together, or of all there are: units first, and of each kind again and again the
        longest that is not too long; a part of the shortest where all are. So what was divided once is used whole
        afterwards, and iterations that ask for the same do not divide more and more."""
        found = self._taken(self._units, n_bytes, self._unit)
        found += self._taken(self._others, n_bytes - _length(found), 1)
        if self._units and _length(found) < n_bytes:
            self._divide_unit()
            found += self._taken(self._others, n_bytes - _length(found), 1)
        return found

    def take_within(self, start: int, end: int) -> list[Piece]:
        """Take all that lie between two addresses, in their order."""
        found = sorted((at, n_bytes) for kind in (self._units, self._others) for n_bytes, at in kind
                       if start <= at < end)
        for at, n_bytes in found:
            kind = self._kind(at, n_bytes)
            del kind[bisect_left(kind, (n_bytes, at))]
            self.n_bytes -= n_bytes
        return found

    def clear(self) -> list[Piece]:
        """Take all."""
        return self.take_within(0, MOST_ADDRESS)

    def _taken(self, kind: list[tuple[int, int]], n_bytes: int, least: int) -> list[Piece]:
        """Pieces of one kind, of which a part is a multiple of the least; at most so many bytes together."""
        found = list[Piece]()
        while kind and n_bytes >= least:
            length, start = kind.pop(max(bisect_right(kind, (n_bytes, MOST_ADDRESS)) - 1, 0))
            if length > n_bytes:
                part = n_bytes // least * least
                insort(kind, (length - part, start + part))
                length = part
            found.append((start, length))
            n_bytes -= length
            self.n_bytes -= length
        return found

    def _divide_unit(self) -> None:
        """Let a unit, of the shortest piece of units, be divided from now on."""
        length, start = self._units.pop(0)
        if length > self._unit:
            insort(self._units, (length - self._unit, start))
        insort(self._others, (self._unit, start + length - self._unit))

    def _kind(self, start: int, n_bytes: int) -> list[tuple[int, int]]:
        return self._others if start % self._unit or n_bytes % self._unit else self._units


def _length(pieces: Iterable[Piece]) -> int:
    return sum(n_bytes for _, n_bytes in pieces)
