"""Kernels of layers with numbers per channel, on (rows, channels) matrices: means, variances, learned scales."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real, stored
from scaffe.layers.kernels.cpu.column_moments import BLOCK, WIDE
from scaffe.layers.kernels.cpu.elementwise import relu_forward
from scaffe.layers.kernels.cpu.memory import zeros
from scaffe.layers.kernels.cpu.parts import in_columns, in_parts
from scaffe.layers.kernels.cpu.words import wide, words
from scaffe.layers.kernels.extents import expect_elems, expect_shape


def scale_rows(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, y: np.ndarray, kept: np.ndarray | None = None,
               relu_slope: float | None = None) -> None:
    """y = x · scale + bias, then a ReLU if a slope is given. y may be x; ``kept`` gets a copy of x first."""
    expect_shape(x.shape, y, kept)
    expect_elems(x.shape[1], scale, bias)
    if kept is not None:
        np.copyto(kept, x)
    if x.ctypes.data == y.ctypes.data:
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


def scale_sums(x: np.ndarray, gy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums over the rows of gy · x and of gy, float64 (channels,): the gradients of scale and bias."""
    expect_shape(x.shape, gy)
    products, sums = zeros(x.shape[1], WIDE), zeros(x.shape[1], WIDE)
    block = (zeros(x.shape[1], wide(x.dtype)) for _ in range(2))
    in_columns(_scale_sums, words(x), words(gy), *block, products, sums)
    return products, sums


@compiled
def _scale_sums(first: int, stop: int, x: np.ndarray, gy: np.ndarray, product: np.ndarray, total: np.ndarray,
                products: np.ndarray, sums: np.ndarray) -> None:
    for start in range(0, x.shape[0], BLOCK):
        for r in range(start, min(start + BLOCK, x.shape[0])):
            for c in range(first, stop):
                grad = real(gy[r, c])
                product[c] += grad * real(x[r, c])
                total[c] += grad
        for c in range(first, stop):
            products[c] += product[c]
            sums[c] += total[c]
            product[c], total[c] = 0, 0
