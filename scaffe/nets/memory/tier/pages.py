"""Memory whose pages pass from array to array, while the addresses stay."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import numpy as np

from scaffe.nets.memory.tier.free_pieces import FreePieces, Piece
from scaffe.nets.memory.tier.mapping import (
    HUGE_BYTES,
    address,
    advise_huge,
    anonymous,
    dismiss,
    make_private,
    rounded,
)
from scaffe.nets.memory.tier.maps import Maps

WORTH_BYTES = 1 << 18  # shorter pieces take longer to move than new pages do: all cores hear of a move
MOVES = 1 | 2 | 4  # MREMAP_MAYMOVE, MREMAP_FIXED, MREMAP_DONTUNMAP

_mremap = ctypes.CDLL(None, use_errno=True).mremap
_mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_mremap.restype = ctypes.c_void_p


class Pages:
    """Arrays at fixed addresses. What an array leaves when it is dropped, those that come next get: its pages are moved
    to their addresses, as they are, which takes less time than new pages, which the system has to fill with zeros.

    Or, once they are arranged, arrays some of which overlap: then nothing is moved either.

    Args:
        lengths: in bytes, as ``rounded`` gives them.

    Attributes:
        arrays: uint8, one for each length.
        most_bytes: that arrays and the pages which wait for one may have together, without what is arranged.
        n_bytes: that they have.
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
        self._apart, self._n_arranged = list(self.arrays), 0

    def adopt(self, memory: np.ndarray) -> None:
        """Add an array that has memory already, uint8, whole pages; if these are huge, they may be so."""
        self.arrays.append(memory)
        advise_huge(memory)

    def arrange(self, offsets: Sequence[int] | None) -> None:
        """Have the first arrays at these offsets of one memory, in bytes; None: apart. Their contents are lost."""
        for number in range(len(self._apart)):
            self.drop(number)
        self.give_back()
        self._n_arranged = 0 if offsets is None else len(self._apart)
        for number, array in enumerate(self._apart):
            start = 0 if offsets is None else offsets[number]
            self.arrays[number] = array if offsets is None else self._whole[start:start + array.nbytes]
            advise_huge(self.arrays[number])
        if offsets is not None:
            ends = [start + array.nbytes for start, array in zip(offsets, self._apart, strict=True)]
            advise_huge(self._whole[:rounded(max(ends, default=0))])

    def take(self, number: int) -> None:
        """Have pages for an array, with any contents, unless it is there."""
        if number in self._pieces or number < self._n_arranged:
            return
        start = address(self.arrays[number])
        end = start + self.arrays[number].nbytes
        if self._maps.are_many():
            self._pieces[number] = self._renewed(self.arrays[number])
            return
        found = self._free.take_within(start, end)  # its own, which nobody has taken meanwhile
        edges = [start, *(edge for at, n_bytes in found for edge in (at, at + n_bytes)), end]
        for gap in zip(edges[::2], edges[1::2], strict=True):
            found += self._filled(self.arrays[number], *(edge - start for edge in gap))
        self._pieces[number] = found

    def _renewed(self, array: np.ndarray) -> list[Piece]:
        """Have new pages for an array, in one range: pages that come from elsewhere make several. As many that wait go
        back."""
        start, n_bytes = address(array), array.nbytes
        self._release(self._free.take_within(start, start + n_bytes))
        self._release(self._free.take(n_bytes))
        make_private(array)
        self.n_bytes += n_bytes
        return [(start, n_bytes)]

    def _filled(self, array: np.ndarray, first: int, stop: int) -> Iterator[Piece]:
        """Have pages in part of an array: some that wait for one, and new ones, by the first write, beyond."""
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
        """Let others have an array's pages, or the system, if it is there. Its contents are lost. Raises OSError."""
        for piece in self._pieces.pop(number, []):
            if self.n_bytes > self.most_bytes or piece[1] < WORTH_BYTES:
                self._release([piece])
            else:
                self._free.put([piece])

    def give_back(self) -> None:
        """Give the pages that wait for an array, and those of arranged ones, back to the system. Raises OSError."""
        self._release(self._free.clear())
        if self._n_arranged:
            dismiss(address(self._whole), self._whole.nbytes)

    def _release(self, pieces: Sequence[Piece]) -> None:
        for start, n_bytes in pieces:
            dismiss(start, n_bytes)
            self.n_bytes -= n_bytes
