"""Crops, mirrors, subtracts the mean and scales a whole batch in one call, and sums over samples; channels-last."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.loops import MIRROR_PADDING, convert_pixels, copy_elements, mirror_row


@compiled(borrows=True)
def _interleave(pixels: np.ndarray, at: int, plane: int, width: int, n_channels: int, mirrored: bool, out: np.ndarray,
                to: int) -> None:
    """Write a row of planes to out[to:], a pixel's channels side by side; from right to left if ``mirrored``."""
    n, end = np.uint64(width), np.uint64(to)
    if n_channels == 3 and not mirrored:
        red, green, blue = np.uint64(at), np.uint64(at + plane), np.uint64(at + 2 * plane)
        for w in range(n):
            k = end + np.uint64(3) * w
            out[k], out[k + np.uint64(1)], out[k + np.uint64(2)] = pixels[red + w], pixels[green + w], pixels[blue + w]
        return
    if n_channels == 3:
        red, green, blue = np.uint64(at), np.uint64(at + plane), np.uint64(at + 2 * plane)
        for w in range(n):
            k, j = end + np.uint64(3) * w, n - np.uint64(1) - w
            out[k], out[k + np.uint64(1)], out[k + np.uint64(2)] = pixels[red + j], pixels[green + j], pixels[blue + j]
        return
    for c in range(n_channels):
        first = np.uint64(at + c * plane)
        for w in range(n):
            of_pixel = n - np.uint64(1) - w if mirrored else np.uint64(w)
            out[end + w * np.uint64(n_channels) + np.uint64(c)] = pixels[first + of_pixel]


@compiled(borrows=True)
def _crop_batch(pixels: np.ndarray, starts: np.ndarray, strides: tuple[int, int, int], places: np.ndarray,
                mean: tuple[np.ndarray, np.ndarray], mean_rows: tuple[int, int], scale: np.float32,
                shape: tuple[int, int, int, int], row: np.ndarray, out: np.ndarray) -> None:
    n, height, width, n_channels = shape
    n_row = width * n_channels
    for i in range(n):
        top, left, mirrored = places[i, 0], places[i, 1], places[i, 2] != 0
        first = left if not (mirrored and mean_rows[0]) else mean_rows[1] - left - width
        for h in range(height):
            at, to = starts[i] + (top + h) * strides[1] + left * strides[2], (i * height + h) * n_row
            mean_at = (top + h) * mean_rows[0] + first * n_channels
            if strides[2] != n_channels:
                _interleave(pixels, at, strides[0], width, n_channels, mirrored, row, 0)
            elif mirrored:
                mirror_row(pixels, at, width, n_channels, row)
            means = mean[1] if mirrored else mean[0]
            if mirrored or strides[2] != n_channels:
                convert_pixels(row, 0, means, mean_at, scale, out, to, n_row)
            else:
                convert_pixels(pixels, at, means, mean_at, scale, out, to, n_row)


def crop_batch(pixels: np.ndarray, starts: np.ndarray, strides: tuple[int, int, int], places: np.ndarray,
               mean: tuple[np.ndarray, np.ndarray], mean_rows: tuple[int, int], scale: np.float32,
               out: np.ndarray) -> None:
    """Write ``(pixel - mean) * scale`` of each sample's crop into ``out``.

    Args:
        pixels: 1-D uint8 or float32, holds all samples.
        starts: int64 (n,), index of each sample's first element in ``pixels``.
        strides: elements between neighbours along (channel, row, column); the last is 1 for planes (channels first)
            and the number of channels for interleaved samples (channels last).
        places: int64 (n, 3): the crop's first row, its first column, and 1 if it is mirrored left to right, else 0.
        mean: float32, 1-D, rows of the uncropped mean image in (column, channel) order; and the same of the image
            mirrored left to right.
        mean_rows: elements from one row of the mean to the next, 0 if one row of equal pixels serves all; and the
            pixels of a row.
        scale: factor.
        out: float32 (n, height, width, channels), contiguous, written.
    """
    row = np.empty(out.shape[2] * out.shape[3] + MIRROR_PADDING, pixels.dtype)
    _crop_batch(pixels, starts, strides, places, mean, mean_rows, scale, out.shape, row, out.reshape(-1))


@compiled(borrows=True)
def _gather_batch(pixels: np.ndarray, starts: np.ndarray, strides: tuple[int, int, int], places: np.ndarray,
                  shape: tuple[int, int, int, int], out: np.ndarray) -> None:
    n, height, width, n_channels = shape
    n_row = width * n_channels
    for i in range(n):
        for h in range(height):
            at = starts[i] + (places[i, 0] + h) * strides[1] + places[i, 1] * strides[2]
            if strides[2] == n_channels:
                copy_elements(pixels, at, out, (i * height + h) * n_row, n_row)
            else:
                _interleave(pixels, at, strides[0], width, n_channels, False, out, (i * height + h) * n_row)


def gather_batch(pixels: np.ndarray, starts: np.ndarray, strides: tuple[int, int, int], places: np.ndarray,
                 out: np.ndarray) -> None:
    """Write each sample's crop, as it is, into ``out``.

    Args:
        pixels: 1-D uint8, holds all samples.
        starts, strides: as for ``crop_batch``.
        places: integers (n, 3), of which the crop's first row and its first column count.
        out: uint8 (n, height, width, channels), contiguous, written.
    """
    _gather_batch(pixels, starts, strides, places, out.shape, out.reshape(-1))


@compiled
def add_samples(pixels: np.ndarray, starts: np.ndarray, sums: np.ndarray) -> None:
    """Add samples up, element by element.

    Args:
        pixels: 1-D uint8 or float32, holds all samples.
        starts: int64 (n,), index of each sample's first element in ``pixels``.
        sums: float64 or, for bytes, uint16, 1-D, as long as a sample; the samples are added to it.
    """
    for start in starts:
        sample = pixels[start:start + sums.size]
        for k in range(sums.size):
            sums[k] += sample[k]
