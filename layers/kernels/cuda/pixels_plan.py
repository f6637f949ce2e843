"""Pixels as readers leave them in memory, a byte each, made floats on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.launch import run_flat, wide
from scaffe.layers.kernels.extents import expect_elems

I = np.int32  # noqa: E741 - the kernel's int


class Pixels:
    """y = (pixel - mean) · scale, mirrored where that is asked for: in float32 the bits that readers compute.

    Args:
        change: has ``mean``, float32, 1-D: a mean image (row, column, channel), or a number for each channel;
            ``row_stride`` and ``column_stride``, elements of it from one row, or column, to the next; ``scale``.
    """

    def __init__(self, change: Any) -> None:
        self._mean = device.load().asarray(change.mean)
        self._strides, self._scale = (I(change.row_stride), I(change.column_stride)), np.float32(change.scale)

    def run(self, pixels: Any, places: Any, y: Any) -> None:
        """Write y, flat, from uint8 (n, height, width, channels); places as in ``backend.Pixels``."""
        n, height, width, n_channels = pixels.shape
        expect_elems(pixels.size, y)
        expect_elems(3 * n, places)
        run_flat("pixels", "floats_of_pixels", y.dtype, pixels.size,
                 (pixels, places, self._mean, *self._strides, wide(y.dtype).type(self._scale), y, I(height), I(width),
                  I(n_channels)), per_thread=1)
