"""Arrays for kernels: aligned to cache lines, named working memory of a thread, bfloat16 arrays as bits."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np


def as_bits(array: Any) -> Any:
    """The array as compiled loops take it: a bfloat16 array as a uint16 view of its bits, any other as it is."""
    return array.view(np.uint16) if array.dtype.kind == "V" else array


def wide(dtype: Any) -> np.dtype:
    """The type to compute in: float32 for half types, else ``dtype``."""
    return np.promote_types(dtype, np.float32)


LINE = 64  # bytes of a cache line, and of the widest vector


def zeros(n_elems: int, dtype: Any = np.float32) -> np.ndarray:
    """A flat array of zeros that begins at a cache line, so that threads that write whole lines share none."""
    kind = np.dtype(dtype)
    n_bytes = n_elems * kind.itemsize
    memory = np.zeros(n_bytes + LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % LINE
    return memory[start:start + n_bytes].view(kind)


_held = threading.local()


def workspace(name: str, n_bytes: int) -> np.ndarray:
    """A named working array of the thread, uint8 (n_bytes,), of undefined contents. It is valid until the thread asks
    for more under that name, or another layer runs."""
    memory: np.ndarray | None = _held.__dict__.get(name)
    if memory is None or memory.nbytes < n_bytes:
        memory = _held.__dict__[name] = zeros(n_bytes, np.uint8)
    return memory[:n_bytes]
