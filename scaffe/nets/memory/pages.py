"""Memory whose pages can be given back to the system one array at a time, while the addresses stay."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence

import numpy as np

PAGE_BYTES = mmap.PAGESIZE
HUGE_BYTES = 1 << 21
MANY_HUGE = 4  # arrays of so many huge pages are made of them: fewer faults, at most a huge page lost each

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


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


class Pages:
    """Arrays at fixed addresses. A page takes memory from its first write on, until the array is dropped.

    Or, once they are arranged, arrays some of which overlap: then no page is given back, so that none is made anew.

    Args:
        lengths: in bytes, as ``rounded`` gives them.

    Attributes:
        arrays: uint8, one for each length.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._whole, at = anonymous(sum(-(-n // HUGE_BYTES) * HUGE_BYTES for n in lengths)), 0
        self.arrays: list[np.ndarray] = []
        for n_bytes in lengths:
            self.adopt(self._whole[at:at + n_bytes])
            at += -(-n_bytes // HUGE_BYTES) * HUGE_BYTES
        self._apart, self._n_arranged = list(self.arrays), 0

    def arrange(self, offsets: Sequence[int] | None) -> None:
        """Have the first arrays at these offsets of one memory, in bytes; None: apart. Their contents are lost."""
        self.give_back()
        self._n_arranged = 0 if offsets is None else len(self._apart)
        for number, array in enumerate(self._apart):
            start = 0 if offsets is None else offsets[number]
            self.arrays[number] = array if offsets is None else self._whole[start:start + array.nbytes]
            self._advise_huge(self.arrays[number])
        if offsets is not None:
            ends = [start + array.nbytes for start, array in zip(offsets, self._apart, strict=True)]
            self._advise_huge(self._whole[:rounded(max(ends, default=0))])

    def give_back(self) -> None:
        """Give the pages of all but adopted arrays back."""
        self._advise(self._whole, mmap.MADV_DONTNEED)

    def adopt(self, memory: np.ndarray) -> None:
        """Add an array that has memory already, uint8, whole pages; if these are huge, they may be so."""
        self.arrays.append(memory)
        self._advise_huge(memory)

    def _advise_huge(self, memory: np.ndarray) -> None:
        is_huge = memory.nbytes % HUGE_BYTES == 0 and memory.nbytes > 0 and memory.ctypes.data % HUGE_BYTES == 0
        self._advise(memory, mmap.MADV_HUGEPAGE if is_huge else mmap.MADV_NOHUGEPAGE, needed=False)

    def drop(self, number: int) -> None:
        """Give an array's pages back, unless it is arranged. Its contents are lost. Raises OSError."""
        if number >= self._n_arranged:
            self._advise(self.arrays[number], mmap.MADV_DONTNEED)

    @staticmethod
    def _advise(array: np.ndarray, what: int, needed: bool = True) -> None:
        if array.nbytes and _madvise(array.ctypes.data, array.nbytes, what) and needed:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
