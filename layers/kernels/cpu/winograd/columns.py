"""The formulas on columns of flat arrays: arguments as ``in_lanes`` says, with how many columns there are."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.lanes import LANES, in_lanes
from scaffe.layers.kernels.cpu.winograd.formulas import READ, TILE, into, out_of, spread

_into, _into_one = in_lanes(into.py_func, READ), in_lanes(into.py_func, READ, 1)
_out_of, _out_of_one = in_lanes(out_of.py_func, READ), in_lanes(out_of.py_func, READ, 1)
_spread, _spread_one = in_lanes(spread.py_func, TILE), in_lanes(spread.py_func, TILE, 1)


@compiled(inline="always")
def into_columns(x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """Bᵀ times n columns."""
    whole = n - n % LANES
    for c in range(0, whole, LANES):
        _into(x, at + c, step, y, to + c, stride)
    for c in range(whole, n):
        _into_one(x, at + c, step, y, to + c, stride)


@compiled(inline="always")
def out_of_columns(x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """Aᵀ times n columns."""
    whole = n - n % LANES
    for c in range(0, whole, LANES):
        _out_of(x, at + c, step, y, to + c, stride)
    for c in range(whole, n):
        _out_of_one(x, at + c, step, y, to + c, stride)


@compiled(inline="always")
def spread_columns(x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """A times n columns."""
    whole = n - n % LANES
    for c in range(0, whole, LANES):
        _spread(x, at + c, step, y, to + c, stride)
    for c in range(whole, n):
        _spread_one(x, at + c, step, y, to + c, stride)
