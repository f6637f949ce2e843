"""Kernels of layers with numbers per channel, on (rows, channels) matrices: batch norm and learned scales."""

from __future__ import annotations

import numpy as np
from numba import njit

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


@njit(cache=True, nogil=True)
def normalize(x, mean, inverse, y):
    """y = (x - mean) · inverse. y may be x."""
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


@njit(cache=True, nogil=True)
def scale_rows(x, scale, bias, y):
    """y = x · scale + bias. y may be x."""
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
