"""Filters to products and back: G w Gᵀ, and Gᵀ u G for their gradients."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.winograd.columns import collected_columns, filtered_columns
from scaffe.layers.kernels.cpu.winograd.formulas import TILE


@compiled
def transform_weights(first: int, stop: int, taps: int, w: np.ndarray, u: np.ndarray) -> None:
    """G w Gᵀ of the filters of some inputs.

    Args:
        first, stop: the inputs.
        taps: weights along an axis, 3 or 5.
        w: (outputs, inputs, taps²), with any strides.
        u: (products, inputs, outputs).
    """
    n, read = w.shape[0], TILE + taps - 1
    filters, half = np.empty((taps * taps, n), w.dtype), np.empty(read * taps * n, w.dtype)
    flat, results, each = filters.reshape(filters.size), u.reshape(u.size), u.shape[1] * n
    for i in range(first, stop):
        for o in range(n):
            for t in range(taps * taps):
                filters[t, o] = w[o, i, t]
        filtered_columns(taps, flat, 0, taps * n, taps * n, half, 0, taps * n)
        for a in range(read):
            filtered_columns(taps, half, a * taps * n, n, n, results, a * read * each + i * n, each)


def turned(w: np.ndarray) -> np.ndarray:
    """A view (..., inputs, outputs, taps²) of weights (..., outputs, inputs, taps²), each filter turned by 180 degrees:
    what carries the top's gradient to the bottom."""
    return np.swapaxes(w, -3, -2)[..., ::-1]


@compiled
def collect_gradient(first: int, stop: int, taps: int, u: np.ndarray, overwrite: bool, gw: np.ndarray) -> None:
    """Gᵀ u G, added to the gradient of the filters of some inputs.

    Args:
        first, stop: the inputs.
        taps: weights along an axis, 3 or 5.
        u: sums of products (products, inputs, outputs).
        overwrite: write instead of adding.
        gw: (outputs, inputs, taps²).
    """
    n, read = u.shape[2], TILE + taps - 1
    half, found = np.empty(taps * read * n, u.dtype), np.empty((taps * taps, n), u.dtype)
    flat, sums, each = found.reshape(found.size), u.reshape(u.size), u.shape[1] * n
    for i in range(first, stop):
        for b in range(read):
            collected_columns(taps, sums, b * each + i * n, read * each, n, half, b * n, read * n)
        for r in range(taps):
            collected_columns(taps, half, r * read * n, n, n, flat, r * taps * n, n)
        for o in range(n):
            for t in range(taps * taps):
                gw[o, i, t] = found[t, o] if overwrite else gw[o, i, t] + found[t, o]
