"""Kernels of layers with numbers per channel, on (rows, channels) matrices: means, variances, learned scales."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real, stored
from scaffe.layers.kernels.cpu.column_sums import STEPS, STREAMS, column_sums
from scaffe.layers.kernels.cpu.elementwise import are_one, relu_forward
from scaffe.layers.kernels.cpu.parts import in_parts
from scaffe.layers.kernels.cpu.words import wide
from scaffe.layers.kernels.extents import expect_elems, expect_shape


def scale_rows(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, y: np.ndarray, kept: np.ndarray | None = None,
               relu_slope: float | None = None) -> None:
    """y = x · scale + bias, then a ReLU if a slope is given. y may be x; ``kept`` gets a copy of x first."""
    expect_shape(x.shape, y, kept)
    expect_elems(x.shape[1], scale, bias)
    if kept is not None:
        in_parts(_scale_rows_keeping, (y, x, kept), scale, bias)
    elif are_one(x, y):
        in_parts(_scale_rows, (y,), None, scale, bias)
    else:
        in_parts(_scale_rows, (y, x), scale, bias)
    if relu_slope is not None:
        relu_forward(y.reshape(-1), y.reshape(-1), relu_slope)


@compiled
def _scale_rows(y: np.ndarray, x: np.ndarray | None, scale: np.ndarray, bias: np.ndarray) -> None:
    for r in range(y.shape[0]):
        for c in range(y.shape[1]):
            y[r, c] = stored(real(y[r, c] if x is None else x[r, c]) * scale[c] + bias[c], y[r, c])


@compiled
def _scale_rows_keeping(y: np.ndarray, x: np.ndarray, kept: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> None:
    """y may be x: a row is copied before it is written."""
    for r in range(y.shape[0]):
        for c in range(y.shape[1]):
            kept[r, c] = x[r, c]
        for c in range(y.shape[1]):
            y[r, c] = stored(real(kept[r, c]) * scale[c] + bias[c], y[r, c])


def scale_sums(x: np.ndarray, gy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums over the rows of gy · x and of gy, float64 (channels,): the gradients of scale and bias."""
    expect_shape(x.shape, gy)
    products, sums = column_sums(_scale_sums, 2, x, gy, np.zeros(0, wide(x.dtype)))
    return products, sums


@compiled
def _scale_sums(first: int, stop: int, n_each: int, x: np.ndarray, gy: np.ndarray, like: np.ndarray,
                found: np.ndarray) -> None:
    n = x.shape[1]
    product, total = np.zeros(n, like.dtype), np.zeros(n, like.dtype)
    for chunk in range(first, stop):
        top, n_rows = chunk * n_each, min(n_each, x.shape[0] - chunk * n_each)
        products, sums, apart = found[chunk, 0], found[chunk, 1], n_rows // STREAMS
        for step in range(0, apart, STEPS):
            for r in range(top + step, top + min(step + STEPS, apart)):
                for c in range(n):
                    g0, g1 = real(gy[r, c]), real(gy[r + apart, c])
                    g2, g3 = real(gy[r + 2 * apart, c]), real(gy[r + 3 * apart, c])
                    total[c] += (g0 + g1) + (g2 + g3)
                    product[c] += ((g0 * real(x[r, c]) + g1 * real(x[r + apart, c]))
                                   + (g2 * real(x[r + 2 * apart, c]) + g3 * real(x[r + 3 * apart, c])))
            for c in range(n):
                products[c] += product[c]
                sums[c] += total[c]
                product[c], total[c] = 0, 0
        for r in range(top + STREAMS * apart, top + n_rows):
            for c in range(n):
                products[c] += real(gy[r, c]) * real(x[r, c])
                sums[c] += real(gy[r, c])
