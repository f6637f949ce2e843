"""Numbers of whole flat arrays, left on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import arena
from scaffe.layers.kernels.cuda.launch import THREADS, blocks_for, kernel, pack


def sum_of_squares(x: Any, out: Any = None) -> Any:
    """The sum of squares of a flat array, float64 (1,), into ``out`` where given; always added in one order."""
    if out is None:
        out = device.load().empty(1, np.float64)
    if not x.size:
        out[...] = 0
        return out
    grid = blocks_for(-(-x.size // pack(x.dtype)))
    (parts,) = arena.take((grid[0], np.float64))
    kernel("reductions", "sum_of_squares", x.dtype)(grid, (THREADS,), (x, parts, np.int64(x.size)))
    kernel("reductions", "sum_parts", x.dtype)((1,), (THREADS,), (parts, out, np.int32(grid[0])))
    return out


def check_finite(x: Any, flag: Any) -> None:
    """Set flag, int32 (1,), to 1 where an element of a flat array is infinite or no number; else leave it."""
    if x.size:
        grid = blocks_for(-(-x.size // pack(x.dtype)))
        kernel("reductions", "check_finite", x.dtype)(grid, (THREADS,), (x, flag, np.int64(x.size)))
