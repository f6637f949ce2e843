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

    Args:
        lengths: in bytes, as ``rounded`` gives them.

    Attributes:
        arrays: uint8, one for each length.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        whole, at = anonymous(sum(-(-n // HUGE_BYTES) * HUGE_BYTES for n in lengths)), 0
        self.arrays: list[np.ndarray] = []
        for n_bytes in lengths:
            self.adopt(whole[at:at + n_bytes])
            at += -(-n_bytes // HUGE_BYTES) * HUGE_BYTES

    def adopt(self, memory: np.ndarray) -> None:
        """Add an array that has memory already, uint8, whole pages; if these are huge, they may be so."""
        is_huge = memory.nbytes % HUGE_BYTES == 0 and memory.nbytes > 0 and memory.ctypes.data % HUGE_BYTES == 0
        self.arrays.append(memory)
        self._advise(memory, mmap.MADV_HUGEPAGE if is_huge else mmap.MADV_NOHUGEPAGE, needed=False)

    def drop(self, number: int) -> None:
        """Give an array's pages back; its contents become zeros. Raises OSError."""
        self._advise(self.arrays[number], mmap.MADV_DONTNEED)

    @staticmethod
    def _advise(array: np.ndarray, what: int, needed: bool = True) -> None:
        if array.nbytes and _madvise(array.ctypes.data, array.nbytes, what) and needed:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
