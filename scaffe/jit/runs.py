"""Runs of elements in flat arrays, copied and cleared: counted without a sign, or LLVM makes no vectors of it."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled(inline="always")
def copy_run(x: np.ndarray, at: int, y: np.ndarray, to: int, n_elems: int) -> None:
    """y[to + i] = x[at + i]."""
    start, end = np.uint64(at), np.uint64(to)
    for i in range(np.uint64(n_elems)):
        y[end + i] = x[start + i]


@compiled(inline="always")
def clear_run(y: np.ndarray, to: int, n_elems: int) -> None:
    """y[to + i] = 0."""
    start = np.uint64(to)
    for i in range(np.uint64(n_elems)):
        y[start + i] = 0
