"""Memory for kernels: NumPy's begins 16 bytes after a cache line does, so that wide vectors straddle two."""

from __future__ import annotations

from typing import Any

import numpy as np

LINE = 64  # bytes of a cache line, and of the widest vector


def zeros(n_elems: int, dtype: Any = np.float32) -> np.ndarray:
    """A flat array of zeros that begins with a cache line, so that threads that write intervals of whole lines share
    none."""
    kind = np.dtype(dtype)
    n_bytes = n_elems * kind.itemsize
    memory = np.zeros(n_bytes + LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % LINE
    return memory[start:start + n_bytes].view(kind)
