"""Softmax over the last axis of rows."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled
def softmax_rows(x, y):
    """y[r] = exp(x[r] - max) / sum, for each row of (rows, classes). y may be x."""
    for r in range(x.shape[0]):
        top = x[r].max()
        total = x.dtype.type(0)
        for c in range(x.shape[1]):
            y[r, c] = np.exp(x[r, c] - top)
            total += y[r, c]
        for c in range(x.shape[1]):
            y[r, c] /= total


@compiled
def softmax_rows_back(y, gy, gx):
    """gx = y (gy - sum(gy y)) for each row. gx may be gy."""
    for r in range(y.shape[0]):
        dot = y.dtype.type(0)
        for c in range(y.shape[1]):
            dot += gy[r, c] * y[r, c]
        for c in range(y.shape[1]):
            gx[r, c] = (gy[r, c] - dot) * y[r, c]
