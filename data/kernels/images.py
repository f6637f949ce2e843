"""Crops, mirrors, subtracts the mean and scales a whole batch in one call, and sums over samples; channels-last."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.loops import flip_row


@compiled
def _row(pixels: np.ndarray, mean: np.ndarray, scale: np.float32, out: np.ndarray) -> None:
    """One row whose elements have the same order in input and output."""
    for k in range(out.size):
        out[k] = (np.float32(pixels[k]) - mean[k]) * scale


@compiled
def _row_of_three(red: np.ndarray, green: np.ndarray, blue: np.ndarray, mean: np.ndarray, scale: np.float32,
                  out: np.ndarray) -> None:
    """One row of three planes, interleaved in the output."""
    for w in range(red.size):
        out[3 * w] = (np.float32(red[w]) - mean[3 * w]) * scale
        out[3 * w + 1] = (np.float32(green[w]) - mean[3 * w + 1]) * scale
        out[3 * w + 2] = (np.float32(blue[w]) - mean[3 * w + 2]) * scale


@compiled
def _row_of_planes(pixels: np.ndarray, at: int, plane: int, mean: np.ndarray, scale: np.float32, out: np.ndarray,
                   n_channels: int) -> None:
    """One row of any number of planes, interleaved in the output."""
    width = out.size // n_channels
    for c in range(n_channels):
        channel = pixels[at + c * plane:at + c * plane + width]
        for w in range(width):
            out[w * n_channels + c] = (np.float32(channel[w]) - mean[w * n_channels + c]) * scale


@compiled
def crop_batch(pixels: np.ndarray, starts: np.ndarray, strides: tuple[int, int, int], places: np.ndarray,
               mean: np.ndarray, mean_stride: int, scale: np.float32, out: np.ndarray) -> None:
    """Write ``(pixel - mean) * scale`` of each sample's crop into ``out``.

    Args:
        pixels: 1-D uint8 or float32, holds all samples.
        starts: int64 (n,), index of each sample's first element in ``pixels``.
        strides: elements between neighbours along (channel, row, column); the last is 1 for planes (channels first)
            and the number of channels for interleaved samples (channels last).
        places: int64 (n, 3): the crop's first row, its first column, and 1 if it is mirrored left to right, else 0.
        mean: float32, 1-D, rows of the uncropped mean image in (column, channel) order.
        mean_stride: elements from one row of the mean to the next; 0 if one row serves all.
        scale: factor.
        out: float32 (n, height, width, channels), contiguous, written.
    """
    n, height, width, n_channels = out.shape
    n_row = width * n_channels
    for i in range(n):
        top, left = places[i, 0], places[i, 1]
        for h in range(height):
            at = starts[i] + (top + h) * strides[1] + left * strides[2]
            mean_at = (top + h) * mean_stride + left * n_channels
            means, row = mean[mean_at:mean_at + n_row], out[i, h].reshape(n_row)
            if strides[2] == n_channels:
                _row(pixels[at:at + n_row], means, scale, row)
            elif n_channels == 3:
                green, blue = at + strides[0], at + 2 * strides[0]
                _row_of_three(pixels[at:at + width], pixels[green:green + width], pixels[blue:blue + width],
                              means, scale, row)
            else:
                _row_of_planes(pixels, at, strides[0], means, scale, row, n_channels)
            if places[i, 2]:
                flip_row(row, n_channels)


@compiled
def gather_batch(pixels: np.ndarray, starts: np.ndarray, strides: tuple[int, int, int], places: np.ndarray,
                 out: np.ndarray) -> None:
    """Write each sample's crop, as it is, into ``out``.

    Args:
        pixels: 1-D uint8, holds all samples.
        starts, strides: as for ``crop_batch``.
        places: integers (n, 3), of which the crop's first row and its first column count.
        out: uint8 (n, height, width, channels), contiguous, written.
    """
    n, height, width, n_channels = out.shape
    n_row = width * n_channels
    for i in range(n):
        for h in range(height):
            at = starts[i] + (places[i, 0] + h) * strides[1] + places[i, 1] * strides[2]
            row = out[i, h].reshape(n_row)
            if strides[2] == n_channels:
                row[:] = pixels[at:at + n_row]
            else:
                for c in range(n_channels):
                    channel = pixels[at + c * strides[0]:at + c * strides[0] + width]
                    for w in range(width):
                        row[w * n_channels + c] = channel[w]


@compiled
def add_samples(pixels: np.ndarray, starts: np.ndarray, sums: np.ndarray) -> None:
    """Add samples up, element by element.

    Args:
        pixels: 1-D uint8 or float32, holds all samples.
        starts: int64 (n,), index of each sample's first element in ``pixels``.
        sums: float64, 1-D, as long as a sample; the samples are added to it.
    """
    for start in starts:
        sample = pixels[start:start + sums.size]
        for k in range(sums.size):
            sums[k] += sample[k]
