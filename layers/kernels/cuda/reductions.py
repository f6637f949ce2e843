"""Reductions of flat arrays, whose results stay on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import arena
from scaffe.layers.kernels.cuda.launch import THREADS, blocks_for, kernel, pack


def sum_of_squares(x: Any, out: Any = None) -> Any:
    """The sum of squares of a flat array, float64 (1,), in ``out`` if given. The order of additions is fixed."""
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
    """Set flag, int32 (1,), to 1 if an element of a flat array is infinite or NaN; else leave it as it is."""
    if x.size:
        grid = blocks_for(-(-x.size // pack(x.dtype)))
        kernel("reductions", "check_finite", x.dtype)(grid, (THREADS,), (x, flag, np.int64(x.size)))
