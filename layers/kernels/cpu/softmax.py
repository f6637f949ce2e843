"""Softmax over the last axis of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.exponent import exponential
from scaffe.layers.kernels.cpu.parts import in_units
from scaffe.layers.kernels.extents import expect_shape

LEAST_POWERS = 1 << 14  # of a thread: handing over a part costs what as many exponentials do
EACH = 16  # rows at a time
REORDERED = {"reassoc"}  # sums in many lanes


def softmax_rows(x: np.ndarray, y: np.ndarray) -> None:
    """y[r] = exp(x[r] - max) / sum, for each row of (rows, classes). y may be x."""
    expect_shape(x.shape, y)
    in_units(_softmax_rows, 1, len(x), x.size // LEAST_POWERS, x, y)


def softmax_rows_back(y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
    """Gradient of softmax: gx = y (gy - sum(gy y)) for each row. gx may be gy."""
    expect_shape(y.shape, gy, gx)
    in_units(_softmax_rows_back, 1, len(y), y.size // LEAST_POWERS, y, gy, gx)


@compiled(inline="always")
def softmax_some(first: int, stop: int, x: np.ndarray, y: np.ndarray) -> None:
    """``softmax_rows`` of rows ``first`` to ``stop``, few enough to stay in the cache."""
    inputs, outputs = x[first:stop], y[first:stop]
    for r in range(len(inputs)):
        row, out = inputs[r], outputs[r]
        top = _largest(row)
        for c in range(row.size):
            out[c] = row[c] - top
    powers = outputs.reshape(outputs.size)
    for i in range(powers.size):
        powers[i] = exponential(powers[i])
    for r in range(len(outputs)):
        out = outputs[r]
        total = out[0]
        for c in range(1, out.size):
            total += out[c]
        for c in range(out.size):
            out[c] /= total


@compiled(inline="always")
def _largest(row: np.ndarray) -> Any:
    """The largest number but NaNs, of four streams, since each comparison waits for the one before it."""
    a = b = c = d = row[0]
    n = row.size // 4
    for i in range(n):
        a, b = max(row[i], a), max(row[n + i], b)
        c, d = max(row[2 * n + i], c), max(row[3 * n + i], d)
    for i in range(4 * n, row.size):
        a = max(row[i], a)
    return max(a, b, c, d)


@compiled(fastmath=REORDERED, borrows=True)
def _softmax_rows(start: int, stop: int, x: np.ndarray, y: np.ndarray) -> None:
    for first in range(start, stop, EACH):
        softmax_some(first, min(first + EACH, stop), x, y)


@compiled
def _softmax_rows_back(start: int, stop: int, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
    for r in range(start, stop):
        dot = y.dtype.type(0)
        for c in range(y.shape[1]):
            dot += gy[r, c] * y[r, c]
        for c in range(y.shape[1]):
            gx[r, c] = (gy[r, c] - dot) * y[r, c]
