"""The formulas on columns of flat arrays: arguments as ``in_lanes`` says, with how many columns there are.

``taps`` is how many weights a filter has along an axis: 3, or 5.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.simd import LANES, in_lanes
from scaffe.layers.kernels.cpu.winograd import formulas as three
from scaffe.layers.kernels.cpu.winograd import formulas_of_five as five
from scaffe.layers.kernels.cpu.winograd.formulas import TAPS


def _lanes(formula: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    """The formula on as many columns as registers hold, and on one."""
    n_inputs = len(signature(formula.py_func).parameters)
    return in_lanes(formula.py_func, n_inputs), in_lanes(formula.py_func, n_inputs, 1)


(_into, _into_one), (_into5, _into5_one) = _lanes(three.into), _lanes(five.into)
(_out_of, _out_of_one), (_out_of5, _out_of5_one) = _lanes(three.out_of), _lanes(five.out_of)
(_spread, _spread_one), (_spread5, _spread5_one) = _lanes(three.spread), _lanes(five.spread)
(_filtered, _filtered_one), (_filtered5, _filtered5_one) = _lanes(three.filtered), _lanes(five.filtered)
(_collected, _collected_one), (_collected5, _collected5_one) = _lanes(three.collected), _lanes(five.collected)


@compiled(inline="always")
def _on_columns(lanes: Any, one: Any, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int,
                stride: int) -> None:
    """A formula on n columns, given for as many as registers hold and for one."""
    whole = n - n % LANES
    for c in range(0, whole, LANES):
        lanes(x, at + c, step, y, to + c, stride)
    for c in range(whole, n):
        one(x, at + c, step, y, to + c, stride)


@compiled(inline="always")
def into_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """Bᵀ times n columns."""
    if taps == TAPS:
        _on_columns(_into, _into_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_into5, _into5_one, x, at, step, n, y, to, stride)


@compiled(inline="always")
def out_of_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """Aᵀ times n columns."""
    if taps == TAPS:
        _on_columns(_out_of, _out_of_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_out_of5, _out_of5_one, x, at, step, n, y, to, stride)


@compiled(inline="always")
def spread_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """A times n columns."""
    if taps == TAPS:
        _on_columns(_spread, _spread_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_spread5, _spread5_one, x, at, step, n, y, to, stride)


@compiled(inline="always")
def filtered_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """G times n columns."""
    if taps == TAPS:
        _on_columns(_filtered, _filtered_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_filtered5, _filtered5_one, x, at, step, n, y, to, stride)


@compiled(inline="always")
def collected_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int,
                      stride: int) -> None:
    """Gᵀ times n columns."""
    if taps == TAPS:
        _on_columns(_collected, _collected_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_collected5, _collected5_one, x, at, step, n, y, to, stride)
