"""Softmax over the last axis of rows."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.extents import expect_shape


def softmax_rows(x: np.ndarray, y: np.ndarray) -> None:
    """y[r] = exp(x[r] - max) / sum, for each row of (rows, classes). y may be x."""
    expect_shape(x.shape, y)
    _softmax_rows(x, y)


def softmax_rows_back(y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
    """Gradient of softmax: gx = y (gy - sum(gy y)) for each row. gx may be gy."""
    expect_shape(y.shape, gy, gx)
    _softmax_rows_back(y, gy, gx)


@compiled
def _softmax_rows(x: np.ndarray, y: np.ndarray) -> None:
    for r in range(x.shape[0]):
        top = x[r].max()
        total = x.dtype.type(0)
        for c in range(x.shape[1]):
            y[r, c] = np.exp(x[r, c] - top)
            total += y[r, c]
        for c in range(x.shape[1]):
            y[r, c] /= total


@compiled
def _softmax_rows_back(y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
    for r in range(y.shape[0]):
        dot = y.dtype.type(0)
        for c in range(y.shape[1]):
            dot += gy[r, c] * y[r, c]
        for c in range(y.shape[1]):
            gx[r, c] = (gy[r, c] - dot) * y[r, c]
