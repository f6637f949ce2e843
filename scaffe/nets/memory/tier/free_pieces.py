"""Which pieces of memory that nobody uses an array gets: a pure account."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

MOST_ADDRESS = 1 << 64
Piece = tuple[int, int]
"""Its address, and its length in bytes."""


class FreePieces:
    """Pieces of memory that nobody uses. They are divided, and never joined again.

    Args:
        unit_bytes: the length that the system moves fastest. A piece for something shorter is cut off at the end of a
            longer one, whose beginning stays a multiple of this.

    Attributes:
        n_bytes: of all of them.
    """

    def __init__(self, unit_bytes: int) -> None:
        self._unit, self.n_bytes = unit_bytes, 0
        self._by_length: list[tuple[int, int]] = []

    def put(self, pieces: Iterable[Piece]) -> None:
        """Add pieces."""
        for start, n_bytes in pieces:
            insort(self._by_length, (n_bytes, start))
            self.n_bytes += n_bytes

    def take(self, n_bytes: int) -> list[Piece]:
        """Take pieces of so many bytes together, or of all there are: again and again the longest that is not too long;
        a part of the shortest where all are. So what was divided once is used whole afterwards, and iterations that
        ask for the same do not divide more and more."""
        found = list[Piece]()
        while n_bytes and self._by_length:
            length, start = self._by_length.pop(max(bisect_right(self._by_length, (n_bytes, MOST_ADDRESS)) - 1, 0))
            if length > n_bytes:
                at_end = n_bytes % self._unit > 0
                rest = (length - n_bytes, start if at_end else start + n_bytes)
                insort(self._by_length, rest)
                length, start = n_bytes, start + rest[0] if at_end else start
            found.append((start, length))
            n_bytes -= length
            self.n_bytes -= length
        return found

    def take_within(self, start: int, end: int) -> list[Piece]:
        """Take all that lie between two addresses, in their order."""
        found = sorted((at, n_bytes) for n_bytes, at in self._by_length if start <= at < end)
        for at, n_bytes in found:
            del self._by_length[bisect_left(self._by_length, (n_bytes, at))]
            self.n_bytes -= n_bytes
        return found

    def clear(self) -> list[Piece]:
        """Take all."""
        return self.take(self.n_bytes)
