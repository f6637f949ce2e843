"""Crop, mirror, subtract the mean, scale: a whole batch in one call, into channels-last floats."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _row_of_one(pixels, at, mean, mean_at, mean_step, scale, out, mirrored):
    """One row of one channel whose neighbours lie next to each other, here and there."""
    n = out.size
    for w in range(n):
        out[w] = (np.float32(pixels[at + w]) - mean[mean_at + w * mean_step]) * scale
    if mirrored:
        for w in range(n // 2):
            out[w], out[n - 1 - w] = out[n - 1 - w], out[w]


@njit(cache=True, nogil=True)
def _row_of_three(pixels, at, plane, mean, mean_at, mean_step, scale, out):
    """One row of three planes into interleaved triples."""
    for w in range(out.size // 3):
        m = mean_at + 3 * w * mean_step
        out[3 * w] = (np.float32(pixels[at + w]) - mean[m]) * scale
        out[3 * w + 1] = (np.float32(pixels[at + plane + w]) - mean[m + 1]) * scale
        out[3 * w + 2] = (np.float32(pixels[at + 2 * plane + w]) - mean[m + 2]) * scale


@njit(cache=True, nogil=True)
def _row(pixels, at, strides, mean, mean_at, mean_step, scale, out, n_channels, mirrored):
    """One row of any strides."""
    width = out.size // n_channels
    for w in range(width):
        to = (width - 1 - w if mirrored else w) * n_channels
        for c in range(n_channels):
            x = np.float32(pixels[at + c * strides[0] + w * strides[2]])
            out[to + c] = (x - mean[mean_at + w * mean_step * n_channels + c]) * scale


@njit(cache=True, nogil=True)
def crop_batch(pixels, starts, strides, places, mean, mean_strides, scale, out):
    """Write ``(pixel - mean) * scale`` of each sample's window into ``out``.

    Args:
        pixels: 1-D uint8 or float32, all samples.
        starts: int64 (n,), each sample's first element.
        strides: elements between neighbours along (channel, row, column).
        places: int64 (n, 3): the window's first row and column, and 1 where it is mirrored left to right.
        mean: float32, 1-D, in (row, column, channel) order.
        mean_strides: (pixels of the mean between rows, 1 or 0 along a row); (0, 0) is one mean a channel.
        scale: float32.
        out: float32 (n, height, width, channels), contiguous.
    """
    n, height, width, n_channels = out.shape
    for i in range(n):
        top, left, mirrored = places[i, 0], places[i, 1], places[i, 2] != 0
        for h in range(height):
            at = starts[i] + (top + h) * strides[1] + left * strides[2]
            mean_at = ((top + h) * mean_strides[0] + left * mean_strides[1]) * n_channels
            row = out[i, h].reshape(width * n_channels)
            if n_channels == 1 and strides[2] == 1:
                _row_of_one(pixels, at, mean, mean_at, mean_strides[1], scale, row, mirrored)
            elif n_channels == 3 and strides[2] == 1 and not mirrored:
                _row_of_three(pixels, at, strides[0], mean, mean_at, mean_strides[1], scale, row)
            else:
                _row(pixels, at, strides, mean, mean_at, mean_strides[1], scale, row, n_channels, mirrored)
