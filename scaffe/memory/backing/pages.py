"""Host memory for tensors at fixed addresses, whose pages pass from one tensor to the next."""

from __future__ import annotations

import ctypes
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from scaffe.mapped_memory import HUGE_BYTES, Maps, address, advise_huge, anonymous, dismiss, make_private, rounded
from scaffe.memory.backing.store import ArrayMemory
from scaffe.memory.plan.layout import Stay

MOST_ADDRESS = 1 << 64
Piece = tuple[int, int]
"""Its address, and its length in bytes."""


class FreePieces:
    """Pieces of memory that nobody uses. They are divided, and never joined again.

    The system moves whole units, which begin and end at multiples of the unit, two to three times as fast as other
    pieces. These are kept together, and an array gets them first, so that what begins with a unit goes on with units.
    """

    def __init__(self, unit_bytes: int) -> None:
        self._unit, self.n_bytes = unit_bytes, 0
        self._units: list[tuple[int, int]] = []  # by length
        self._others: list[tuple[int, int]] = []

    def put(self, pieces: Iterable[Piece]) -> None:
        for start, n_bytes in pieces:
            insort(self._kind(start, n_bytes), (n_bytes, start))
            self.n_bytes += n_bytes

    def take(self, n_bytes: int) -> list[Piece]:
        """Take pieces of so many bytes together, or all that there are. Units come first, and of each kind the longest
        piece that is not too long, again and again, or a part of the shortest if all are. What was divided once is so
        used whole afterwards, and iterations that ask for the same do not divide further."""
        found = self._taken(self._units, n_bytes, self._unit)
        found += self._taken(self._others, n_bytes - _length(found), 1)
        if self._units and _length(found) < n_bytes:
            self._divide_unit()
            found += self._taken(self._others, n_bytes - _length(found), 1)
        return found

    def take_within(self, start: int, end: int) -> list[Piece]:
        found = sorted((at, n_bytes) for kind in (self._units, self._others) for n_bytes, at in kind
                       if start <= at < end)
        for at, n_bytes in found:
            kind = self._kind(at, n_bytes)
            del kind[bisect_left(kind, (n_bytes, at))]
            self.n_bytes -= n_bytes
        return found

    def clear(self) -> list[Piece]:
        return self.take_within(0, MOST_ADDRESS)

    def _taken(self, kind: list[tuple[int, int]], n_bytes: int, least: int) -> list[Piece]:
        """Pieces of one kind, at most so many bytes together; a part of a piece is a multiple of ``least``."""
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
        length, start = self._units.pop(0)
        if length > self._unit:
            insort(self._units, (length - self._unit, start))
        insort(self._others, (self._unit, start + length - self._unit))

    def _kind(self, start: int, n_bytes: int) -> list[tuple[int, int]]:
        return self._others if start % self._unit or n_bytes % self._unit else self._units


def _length(pieces: Iterable[Piece]) -> int:
    return sum(n_bytes for _, n_bytes in pieces)


WORTH_BYTES = 1 << 18  # shorter pieces take longer to move than new pages do: all cores hear of a move
MOVES = 1 | 2 | 4  # MREMAP_MAYMOVE, MREMAP_FIXED, MREMAP_DONTUNMAP

_mremap = ctypes.CDLL(None, use_errno=True).mremap
_mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_mremap.restype = ctypes.c_void_p


class Pages(ArrayMemory):
    """Arrays at fixed addresses. The pages of an array that is dropped are moved to the addresses of those that come
    next. That takes less time than new pages, which the system has to fill with zeros.

    Once they are arranged, arrays share one memory instead, and nothing is moved.

    Args:
        lengths: in bytes, as ``rounded`` gives them.

    Attributes:
        most_bytes: the most that arrays, and pages which wait for one, may have together, without what is arranged.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._whole, at = anonymous(sum(-(-n // HUGE_BYTES) * HUGE_BYTES for n in lengths)), 0
        self.arrays: list[np.ndarray] = []
        self._pieces: dict[int, list[Piece]] = {}  # of the arrays that are there
        self._free, self._maps = FreePieces(HUGE_BYTES), Maps()
        self.most_bytes = self.n_bytes = 0
        for n_bytes in lengths:
            self.adopt(self._whole[at:at + n_bytes])
            at += -(-n_bytes // HUGE_BYTES) * HUGE_BYTES
        self._separate, self._n_arranged = list(self.arrays), 0

    def adopt(self, memory: np.ndarray) -> None:
        self.arrays.append(memory)
        advise_huge(memory)

    def arrange(self, offsets: Sequence[int] | None, stays: Sequence[Stay] = ()) -> None:
        for number in range(len(self._separate)):
            self.drop(number)
        self.give_back()
        self._n_arranged = 0 if offsets is None else len(self._separate)
        for number, array in enumerate(self._separate):
            start = 0 if offsets is None else offsets[number]
            self.arrays[number] = array if offsets is None else self._whole[start:start + array.nbytes]
            advise_huge(self.arrays[number])
        if offsets is not None:
            ends = [start + array.nbytes for start, array in zip(offsets, self._separate, strict=True)]
            advise_huge(self._whole[:rounded(max(ends, default=0))])

    def take(self, number: int) -> None:
        if number in self._pieces or number < self._n_arranged:
            return
        start = address(self.arrays[number])
        end = start + self.arrays[number].nbytes
        if self._maps.are_many():
            self._pieces[number] = self._new_pages(self.arrays[number])
            return
        found = self._free.take_within(start, end)  # its own, which nobody has taken meanwhile
        edges = [start, *(edge for at, n_bytes in found for edge in (at, at + n_bytes)), end]
        for gap in zip(edges[::2], edges[1::2], strict=True):
            found += self._filled(self.arrays[number], *(edge - start for edge in gap))
        self._pieces[number] = found

    def _new_pages(self, array: np.ndarray) -> list[Piece]:
        """Put new pages at an array's addresses, in one range, since pages from elsewhere make several. As many that
        wait are given back."""
        start, n_bytes = address(array), array.nbytes
        self._release(self._free.take_within(start, start + n_bytes))
        self._release(self._free.take(n_bytes))
        make_private(array)
        self.n_bytes += n_bytes
        return [(start, n_bytes)]

    def _filled(self, array: np.ndarray, first: int, stop: int) -> Iterator[Piece]:
        """Have pages in part of an array: first some that wait for one, then new ones, taken by the first write."""
        at, end = address(array) + first, address(array) + stop
        for start, n_bytes in self._free.take(end - at):
            if _mremap(start, n_bytes, n_bytes, MOVES, at) != at:  # an old system, or too many pieces: a new page
                dismiss(start, n_bytes)
                make_private(array[at - address(array):][:n_bytes])  # where addresses may be gone by now
            yield at, n_bytes
            at += n_bytes
        if at < end:
            self.n_bytes += end - at
            yield at, end - at

    def drop(self, number: int) -> None:
        for piece in self._pieces.pop(number, []):
            if self.n_bytes > self.most_bytes or piece[1] < WORTH_BYTES:
                self._release([piece])
            else:
                self._free.put([piece])

    def give_back(self) -> None:
        """See ArrayMemory: those that wait, and those of arranged arrays. Raises OSError."""
        self._release(self._free.clear())
        if self._n_arranged:
            dismiss(address(self._whole), self._whole.nbytes)

    def _release(self, pieces: Sequence[Piece]) -> None:
        for start, n_bytes in pieces:
            dismiss(start, n_bytes)
            self.n_bytes -= n_bytes
