"""Converts the readers' pixels (uint8) to the net's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import stored
from scaffe.jit.loops import MIRROR_PADDING, mirror_row
from scaffe.layers.kernels.cpu.arrays import as_bits, wide
from scaffe.layers.kernels.cpu.threads.parts import LEAST_ELEMS, in_units
from scaffe.layers.kernels.extents import expect_elems


class Pixels:
    """y = (pixel - mean) · scale, mirrored where asked for, with the bits that readers would compute; see
    ``Backend.pixels``."""

    def __init__(self, change: Any) -> None:
        self._mean, self._row_stride, self._scale = change.mean, change.row_stride, np.float32(change.scale)
        self._one_row = np.empty(0, np.float32)
        self._mirrored, self._width = self._mean, 0
        if change.row_stride:
            rows = self._mean.reshape(-1, change.row_stride // change.column_stride, change.column_stride)
            self._mirrored, self._width = np.ascontiguousarray(rows[:, ::-1]).reshape(-1), rows.shape[1]

    def run(self, pixels: np.ndarray, places: np.ndarray, y: np.ndarray) -> None:
        n, height, width, n_channels = pixels.shape
        expect_elems(pixels.size, y)
        expect_elems(3 * n, places)
        if not (self._row_stride or places[:, 2].any()):  # an image is then one long row
            height, width = 1, height * width
        in_units(_change, 1, n, pixels.size // LEAST_ELEMS, pixels.reshape(-1), (height, width, n_channels), places,
                 self._means(width), (self._row_stride, self._width), wide(y.dtype).type(self._scale),
                 as_bits(y))

    def _means(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """The mean in (row, column, channel) order, and mirrored; for one number a channel, a row as an image's."""
        if self._row_stride:
            return self._mean, self._mirrored
        if self._one_row.size < width * self._mean.size:
            self._one_row = np.tile(self._mean, width)
        return self._one_row, self._one_row


@compiled
def _change(start: int, stop: int, pixels: np.ndarray, shape: tuple[int, int, int], places: np.ndarray,
            mean: tuple[np.ndarray, np.ndarray], mean_rows: tuple[int, int], scale: float, y: np.ndarray) -> None:
    """Convert images [start, stop). ``mean_rows``: elements from one row of the mean to the next, pixels of a row."""
    height, width, n_channels = shape
    n_row = width * n_channels
    row = np.empty(n_row + MIRROR_PADDING, np.uint8)
    for i in range(start, stop):
        mirrored = places[i, 2] != 0
        first = mean_rows[1] - places[i, 1] - width if mirrored else places[i, 1]
        for h in range(height):
            at = (i * height + h) * n_row
            mean_at = (places[i, 0] + h) * mean_rows[0] + first * n_channels if mean_rows[0] else 0
            if mirrored:
                mirror_row(pixels, at, width, n_channels, row)
                _convert(row, 0, mean[1], mean_at, scale, y, at, n_row)
            else:
                _convert(pixels, at, mean[0], mean_at, scale, y, at, n_row)


@compiled(inline="always")
def _convert(pixels: np.ndarray, at: int, mean: np.ndarray, mean_at: int, scale: float, y: np.ndarray, to: int,
             n_elems: int) -> None:
    start, of_mean, end = np.uint64(at), np.uint64(mean_at), np.uint64(to)
    for k in range(np.uint64(n_elems)):
        y[end + k] = stored((np.float32(pixels[start + k]) - mean[of_mean + k]) * scale, y[end + k])
