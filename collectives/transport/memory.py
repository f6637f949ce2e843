"""Private page-aligned buffers on huge pages."""

import mmap
from typing import Any

import numpy as np

HUGE_PAGE_BYTES = 2 << 20


def private_empty(n_elems: int, dtype: Any) -> np.ndarray:
    """A zeroed 1-D array of `n_elems` in this process's own memory, on transparent huge pages from 2 MiB up."""
    dtype = np.dtype(dtype)
    n_bytes = n_elems * dtype.itemsize
    if n_bytes < HUGE_PAGE_BYTES:
        return np.zeros(n_elems, dtype)
    pages = mmap.mmap(-1, n_bytes + HUGE_PAGE_BYTES)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, np.uint8)
    skip = -whole.ctypes.data % HUGE_PAGE_BYTES
    return whole[skip : skip + n_bytes].view(dtype)
