"""Kernels of layers with numbers per channel, on (rows, channels) matrices: means, variances, learned scales."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real, stored
from scaffe.layers.kernels.cpu.elementwise import relu_forward
from scaffe.layers.kernels.cpu.words import words
from scaffe.layers.kernels.extents import expect_elems, expect_shape

WIDE = np.float64  # sums over many rows lose digits in float32


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each column, float64 (channels,). The variance divides by the number of rows."""
    mean, variance = np.zeros(x.shape[1], WIDE), np.zeros(x.shape[1], WIDE)
    _moments(words(x), mean, variance)
    return mean, variance


@compiled
def _moments(x: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
    n_rows, n_channels = x.shape
    for r in range(n_rows):
        for c in range(n_channels):
            mean[c] += real(x[r, c])
    mean /= n_rows
    for r in range(n_rows):
        for c in range(n_channels):
            away = real(x[r, c]) - mean[c]
            variance[c] += away * away
    variance /= n_rows


def column_sums(x: np.ndarray, sums: np.ndarray, overwrite: bool) -> None:
    """Add the sums of the columns of x (rows, channels) to ``sums`` (channels,), or write them if ``overwrite``."""
    expect_elems(x.shape[1], sums)
    total = np.zeros_like(sums)
    _column_sums(words(x), total)
    sums[...] = total if overwrite else sums + total


@compiled
def _column_sums(x: np.ndarray, sums: np.ndarray) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            sums[c] += real(x[r, c])


def scale_rows(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, y: np.ndarray, kept: np.ndarray | None = None,
               relu_slope: float | None = None) -> None:
    """y = x · scale + bias, then a ReLU if a slope is given. y may be x; ``kept`` gets a copy of x first."""
    expect_shape(x.shape, y, kept)
    expect_elems(x.shape[1], scale, bias)
    if kept is not None:
        np.copyto(kept, x)
    _scale_rows(words(x), scale, bias, words(y))
    if relu_slope is not None:
        relu_forward(y.reshape(-1), y.reshape(-1), relu_slope)


@compiled
def _scale_rows(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, y: np.ndarray) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            y[r, c] = stored(real(x[r, c]) * scale[c] + bias[c], y[r, c])


def scale_sums(x: np.ndarray, gy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums over the rows of gy · x and of gy, float64 (channels,): the gradients of scale and bias."""
    expect_shape(x.shape, gy)
    products, sums = np.zeros(x.shape[1], WIDE), np.zeros(x.shape[1], WIDE)
    _scale_sums(words(x), words(gy), products, sums)
    return products, sums


@compiled
def _scale_sums(x: np.ndarray, gy: np.ndarray, products: np.ndarray, sums: np.ndarray) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            grad = real(gy[r, c])
            products[c] += grad * real(x[r, c])
            sums[c] += grad
