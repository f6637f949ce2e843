"""Kernels of layers with numbers per channel, on (rows, channels) matrices: batch norm and learned scales."""

from __future__ import annotations

import numpy as np
from numba import njit

from layers.kernels.elementwise import relu_forward

WIDE = np.float64  # sums over many rows lose digits in float32


@njit(cache=True, nogil=True)
def moments(x):
    """Mean and variance (divided by the number of rows) of each column, float64."""
    n_rows, n_channels = x.shape
    mean, variance = np.zeros(n_channels, WIDE), np.zeros(n_channels, WIDE)
    for r in range(n_rows):
        for c in range(n_channels):
            mean[c] += x[r, c]
    mean /= n_rows
    for r in range(n_rows):
        for c in range(n_channels):
            away = x[r, c] - mean[c]
            variance[c] += away * away
    variance /= n_rows
    return mean, variance


def normalize(x: np.ndarray, mean: np.ndarray, inverse: np.ndarray, y: np.ndarray,
              kept: np.ndarray | None = None) -> None:
    """y = (x - mean) · inverse. y may be x; ``kept`` takes a copy of x first."""
    if kept is not None:
        np.copyto(kept, x)
    _normalize(x, mean, inverse, y)


@njit(cache=True, nogil=True)
def _normalize(x, mean, inverse, y):
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            y[r, c] = (x[r, c] - mean[c]) * inverse[c]


@njit(cache=True, nogil=True)
def normalize_back(x, gy, gx, mean, inverse):
    """gx = (gy - mean(gy) - xn mean(gy xn)) · inverse with xn = (x - mean) · inverse. gx may be gy."""
    n_rows, n_channels = x.shape
    sums, products = np.zeros(n_channels, WIDE), np.zeros(n_channels, WIDE)
    for r in range(n_rows):
        for c in range(n_channels):
            sums[c] += gy[r, c]
            products[c] += gy[r, c] * (x[r, c] - mean[c])
    level, slope = np.empty(n_channels, x.dtype), np.empty(n_channels, x.dtype)
    for c in range(n_channels):
        level[c] = sums[c] / n_rows
        slope[c] = products[c] / n_rows * inverse[c] * inverse[c]
    for r in range(n_rows):
        for c in range(n_channels):
            gx[r, c] = (gy[r, c] - level[c] - (x[r, c] - mean[c]) * slope[c]) * inverse[c]


def scale_rows(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, y: np.ndarray, kept: np.ndarray | None = None,
               relu_slope: float | None = None) -> None:
    """y = x · scale + bias, and ReLU of that slope if one is given. y may be x; ``kept`` takes a copy of x first."""
    if kept is not None:
        np.copyto(kept, x)
    _scale_rows(x, scale, bias, y)
    if relu_slope is not None:
        relu_forward(y.reshape(-1), y.reshape(-1), relu_slope)


@njit(cache=True, nogil=True)
def _scale_rows(x, scale, bias, y):
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            y[r, c] = x[r, c] * scale[c] + bias[c]


@njit(cache=True, nogil=True)
def scale_sums(x, gy):
    """Sums over rows of gy x and of gy, for the gradients of scale and bias, float64."""
    products, sums = np.zeros(x.shape[1], WIDE), np.zeros(x.shape[1], WIDE)
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            products[c] += gy[r, c] * x[r, c]
            sums[c] += gy[r, c]
    return products, sums
