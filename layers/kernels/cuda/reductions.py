"""Reductions of flat arrays whose results stay on the device, and the updates that they let be skipped."""

from __future__ import annotations

from collections.abc import Sequence
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


class Guard:
    """Checks gradients, and puts into an update's factor whether to skip it."""

    def __init__(self) -> None:
        cupy = device.load()
        self._flag = cupy.zeros(1, np.int32)
        self._n_left_out = cupy.zeros(1, np.int32)

    def look(self, gradients: Sequence[Any]) -> Any:
        """Check flat arrays. Returns a flag on the device, int32 (1,): not 0 if some number is not finite."""
        self._flag[...] = 0
        for gradient in gradients:
            check_finite(gradient, self._flag)
        return self._flag

    def checked(self, factor: Any) -> Any:
        """The factor, a number or from ``clip_factor``, and the flag of the last ``look``: float32 (2,)."""
        both = device.load().empty(2, np.float32)
        both[:1] = factor[:1] if hasattr(factor, "__cuda_array_interface__") else factor
        both[1:] = self._flag
        self._n_left_out += self._flag != 0
        return both

    def take(self) -> float:
        """How many updates were skipped since the last call; waits for the device."""
        n_left_out = float(self._n_left_out[0])
        self._n_left_out[...] = 0
        return n_left_out
