"""Memory whose pages pass from array to array, while the addresses stay."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence

import numpy as np

from scaffe.nets.memory.free_pieces import FreePieces, Piece

PAGE_BYTES = mmap.PAGESIZE
HUGE_BYTES = 1 << 21
MANY_HUGE = 4  # arrays of so many huge pages are made of them: fewer faults, at most a huge page lost each
WORTH_BYTES = 1 << 16  # shorter pieces take longer to move than new pages do
MOVES = 1 | 2 | 4  # MREMAP_MAYMOVE, MREMAP_FIXED, MREMAP_DONTUNMAP

_libc = ctypes.CDLL(None, use_errno=True)
_madvise, _mremap = _libc.madvise, _libc.mremap
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_mremap.restype = ctypes.c_void_p


def rounded(n_bytes: int) -> int:
    """The bytes that an array takes in whole pages."""
    page = HUGE_BYTES if n_bytes >= MANY_HUGE * HUGE_BYTES else PAGE_BYTES
    return -(-n_bytes // page) * page


def anonymous(n_bytes: int) -> np.ndarray:
    """Memory, uint8, (n_bytes,), that begins with a huge page; its pages are taken by the first write."""
    whole = np.frombuffer(mmap.mmap(-1, n_bytes + HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    at = -whole.ctypes.data % HUGE_BYTES
    return whole[at:at + n_bytes]


def inner(memory: np.ndarray) -> np.ndarray:
    """The whole pages within memory, uint8; of long memory, the whole huge pages. Empty where there is none."""
    page = HUGE_BYTES if memory.nbytes >= MANY_HUGE**2 * HUGE_BYTES else PAGE_BYTES
    first = -memory.ctypes.data % page
    return memory[first:first + max(0, memory.nbytes - first) // page * page]


def forget(memory: np.ndarray) -> None:
    """Give the whole pages within an array back, whose contents nobody needs. No effect on a device's arrays. Raises
    OSError."""
    if isinstance(memory, np.ndarray):
        pages = inner(memory.view(np.uint8))
        _dismiss(_address(pages), pages.nbytes)


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
        self._free = FreePieces(HUGE_BYTES)
        self.most_bytes = self.n_bytes = 0
        for n_bytes in lengths:
            self.adopt(self._whole[at:at + n_bytes])
            at += -(-n_bytes // HUGE_BYTES) * HUGE_BYTES
        self._apart, self._n_arranged = list(self.arrays), 0

    def adopt(self, memory: np.ndarray) -> None:
        """Add an array that has memory already, uint8, whole pages; if these are huge, they may be so."""
        self.arrays.append(memory)
        _advise_huge(memory)

    def arrange(self, offsets: Sequence[int] | None) -> None:
        """Have the first arrays at these offsets of one memory, in bytes; None: apart. Their contents are lost."""
        for number in range(len(self._apart)):
            self.drop(number)
        self.give_back()
        self._n_arranged = 0 if offsets is None else len(self._apart)
        for number, array in enumerate(self._apart):
            start = 0 if offsets is None else offsets[number]
            self.arrays[number] = array if offsets is None else self._whole[start:start + array.nbytes]
            _advise_huge(self.arrays[number])
        if offsets is not None:
            ends = [start + array.nbytes for start, array in zip(offsets, self._apart, strict=True)]
            _advise_huge(self._whole[:rounded(max(ends, default=0))])

    def take(self, number: int) -> None:
        """Have pages for an array, with any contents, unless it is there."""
        if number in self._pieces or number < self._n_arranged:
            return
        start = _address(self.arrays[number])
        end = start + self.arrays[number].nbytes
        found = self._free.take_within(start, end)  # its own, which nobody has taken meanwhile
        edges = [start, *(edge for at, n_bytes in found for edge in (at, at + n_bytes)), end]
        for gap in zip(edges[::2], edges[1::2], strict=True):
            found += self._filled(*gap)
        self._pieces[number] = found

    def _filled(self, at: int, end: int) -> Iterator[Piece]:
        """Have pages between two addresses: some that wait for an array, and new ones, by the first write, beyond."""
        for start, n_bytes in self._free.take(end - at):
            if _mremap(start, n_bytes, n_bytes, MOVES, at) != at:  # an old system, or too many pieces: a new page
                _dismiss(start, n_bytes)
            yield at, n_bytes
            at += n_bytes
        if at < end:
            self.n_bytes += end - at
            yield at, end - at

    def hold(self, number: int) -> None:
        """Say that an array is there, with pages of its own."""
        self._pieces[number] = [(_address(self.arrays[number]), self.arrays[number].nbytes)]
        self.n_bytes += self.arrays[number].nbytes

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
            _dismiss(_address(self._whole), self._whole.nbytes)

    def _release(self, pieces: Sequence[Piece]) -> None:
        for start, n_bytes in pieces:
            _dismiss(start, n_bytes)
            self.n_bytes -= n_bytes


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def _dismiss(start: int, n_bytes: int) -> None:
    if n_bytes and _madvise(start, n_bytes, mmap.MADV_DONTNEED):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _advise_huge(memory: np.ndarray) -> None:
    """Ask for huge pages where memory consists of whole ones, and else for none. Systems without them do not mind."""
    start, n_bytes = _address(memory), memory.nbytes
    is_huge = n_bytes > 0 and n_bytes % HUGE_BYTES == start % HUGE_BYTES == 0
    if n_bytes:
        _madvise(start, n_bytes, mmap.MADV_HUGEPAGE if is_huge else mmap.MADV_NOHUGEPAGE)
