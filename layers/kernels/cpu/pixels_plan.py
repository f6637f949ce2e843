"""Converts the readers' pixels (uint8) to the net's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import stored
from scaffe.jit.loops import flip_row
from scaffe.layers.kernels.cpu.arrays import as_bits, wide
from scaffe.layers.kernels.cpu.threads.parts import LEAST_ELEMS, in_units
from scaffe.layers.kernels.extents import expect_elems


class Pixels:
    """y = (pixel - mean) · scale, mirrored where asked for, with the bits that readers would compute; see
    ``Backend.pixels``."""

    def __init__(self, change: Any) -> None:
        self._mean, self._row_stride, self._scale = change.mean, change.row_stride, np.float32(change.scale)
        self._one_row = np.empty(0, np.float32)

    def run(self, pixels: np.ndarray, places: np.ndarray, y: np.ndarray) -> None:
        n, height, width, n_channels = pixels.shape
        expect_elems(pixels.size, y)
        expect_elems(3 * n, places)
        if not (self._row_stride or places[:, 2].any()):  # an image is then one long row
            height, width = 1, height * width
        mean, scale = self._means(width), wide(y.dtype).type(self._scale)
        rows, out = pixels.reshape(n, height, width * n_channels), as_bits(y).reshape(n, height, width * n_channels)
        in_units(_change, 1, n, pixels.size // LEAST_ELEMS, rows, places, mean, self._row_stride, n_channels, scale,
                 out)

    def _means(self, width: int) -> np.ndarray:
        """The mean in (row, column, channel) order; for one number a channel, a row as long as an image's."""
        if self._row_stride:
            mean: np.ndarray = self._mean
            return mean
        if self._one_row.size < width * self._mean.size:
            self._one_row = np.tile(self._mean, width)
        return self._one_row


@compiled
def _change(start: int, stop: int, pixels: np.ndarray, places: np.ndarray, mean: np.ndarray, row_stride: int,
            n_channels: int, scale: float, y: np.ndarray) -> None:
    """Convert images [start, stop) of rows (n, height, columns · channels)."""
    n_row = pixels.shape[2]
    for i in range(start, stop):
        for h in range(pixels.shape[1]):
            at = (places[i, 0] + h) * row_stride + places[i, 1] * n_channels if row_stride else 0
            means, row, out = mean[at:at + n_row], pixels[i, h], y[i, h]
            for k in range(n_row):
                out[k] = stored((np.float32(row[k]) - means[k]) * scale, out[k])
            if places[i, 2]:
                flip_row(out, n_channels)
