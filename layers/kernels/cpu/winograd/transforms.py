"""Winograd's transforms on columns of flat arrays; arguments as ``vectorized`` says, with the number of columns n.

``taps`` is how many weights a filter has along an axis: 3, or 5.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.simd import LANES, vectorized
from scaffe.layers.kernels.cpu.winograd import matrices
from scaffe.layers.kernels.cpu.winograd.matrices import TAPS


def _vectorized(formula: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    """The formula on as many columns as a register has lanes, and on one."""
    n_inputs = len(signature(formula.py_func).parameters)
    return vectorized(formula.py_func, n_inputs), vectorized(formula.py_func, n_inputs, 1)


_input, _input_one = _vectorized(matrices.input_transform)
_input5, _input5_one = _vectorized(matrices.input_transform_5)
_output, _output_one = _vectorized(matrices.output_transform)
_output5, _output5_one = _vectorized(matrices.output_transform_5)
_output_gradient, _output_gradient_one = _vectorized(matrices.output_gradient_transform)
_output_gradient5, _output_gradient5_one = _vectorized(matrices.output_gradient_transform_5)
_filter, _filter_one = _vectorized(matrices.filter_transform)
_filter5, _filter5_one = _vectorized(matrices.filter_transform_5)
_filter_gradient, _filter_gradient_one = _vectorized(matrices.filter_gradient_transform)
_filter_gradient5, _filter_gradient5_one = _vectorized(matrices.filter_gradient_transform_5)


@compiled(inline="always")
def _on_columns(vector: Any, one: Any, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int,
                stride: int) -> None:
    """A formula on n columns, given for as many as a register has lanes and for one."""
    whole = n - n % LANES
    for c in range(0, whole, LANES):
        vector(x, at + c, step, y, to + c, stride)
    for c in range(whole, n):
        one(x, at + c, step, y, to + c, stride)


@compiled(inline="always")
def input_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """Bᵀ times n columns."""
    if taps == TAPS:
        _on_columns(_input, _input_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_input5, _input5_one, x, at, step, n, y, to, stride)


@compiled(inline="always")
def output_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """Aᵀ times n columns."""
    if taps == TAPS:
        _on_columns(_output, _output_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_output5, _output5_one, x, at, step, n, y, to, stride)


@compiled(inline="always")
def output_gradient_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int,
                            stride: int) -> None:
    """A times n columns."""
    if taps == TAPS:
        _on_columns(_output_gradient, _output_gradient_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_output_gradient5, _output_gradient5_one, x, at, step, n, y, to, stride)


@compiled(inline="always")
def filter_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int, stride: int) -> None:
    """G times n columns."""
    if taps == TAPS:
        _on_columns(_filter, _filter_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_filter5, _filter5_one, x, at, step, n, y, to, stride)


@compiled(inline="always")
def filter_gradient_columns(taps: int, x: np.ndarray, at: int, step: int, n: int, y: np.ndarray, to: int,
                            stride: int) -> None:
    """Gᵀ times n columns."""
    if taps == TAPS:
        _on_columns(_filter_gradient, _filter_gradient_one, x, at, step, n, y, to, stride)
    else:
        _on_columns(_filter_gradient5, _filter_gradient5_one, x, at, step, n, y, to, stride)
