"""Convolutions with one weight a channel, forward alone: products of pixels and weights."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit.tiles import COLUMNS
from scaffe.layers.kernels.cpu.memory import zeros
from scaffe.layers.kernels.cpu.panels import in_panels, is_fast, multiply_pixels, rows_at_once
from scaffe.layers.kernels.cpu.parts import in_ranges
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import ConvSpec

GROUP_BYTES = 1 << 18  # of weights that are read for all pixels before the next: they stay in a core's cache
LEAST_PIXELS = 7  # fewer are read as slowly as weights
LEAST_PRODUCTS = 1 << 21  # of a thread: handing over a part costs what summing them does


class Pointwise:
    """One geometry, for which ``suits`` holds; see ``InferencePlan``.

    Args:
        spec: the geometry.
        relu_slope: slope below 0 of a ReLU at the end; None: no ReLU.
    """

    def __init__(self, spec: ConvSpec, relu_slope: float | None) -> None:
        n, self._k, *image = spec.in_shape
        self._slope, n_pixels = np.float32(1 if relu_slope is None else relu_slope), n * prod(image)
        lines, pixels, n_lines = (1, 1, 1), (n_pixels, n_pixels, 1), 1
        if max(spec.stride) > 1:
            (height, width), (in_height, in_width), (line_step, step) = spec.out_spatial, image, spec.stride
            lines, pixels, n_lines = (height, in_height, line_step), (width, in_width, step), n * height
        self._n_tiles = n_lines * -(-pixels[0] // rows_at_once(pixels[0]))
        self._n_panels, group = spec.n_output // COLUMNS, max(GROUP_BYTES // (4 * self._k * COLUMNS), 1)
        self._geometry = np.array([self._k, group, *lines, *pixels], np.int64)
        self._w, self._b = zeros(self._k * spec.n_output), np.zeros(spec.n_output, np.float32)
        self._sizes = prod(spec.in_shape), prod(spec.out_shape)
        self._most = self._sizes[1] * self._k // LEAST_PRODUCTS

    def take(self, w: np.ndarray, b: np.ndarray) -> None:
        """See InferencePlan."""
        self._w.reshape(self._n_panels, self._k, COLUMNS)[...] = in_panels(w.reshape(-1, self._k).T)
        self._b[...] = b

    def adopt(self, other: Pointwise) -> None:
        """See InferencePlan."""
        self._w, self._b = other._w, other._b

    def forward(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> None:
        """See InferencePlan."""
        expect_elems(self._sizes[0], x)
        expect_elems(self._sizes[1], y, added)
        what = (x.reshape(-1), self._geometry, self._w, self._b, (y if added is None else added).reshape(-1),
                added is not None, self._slope, y.reshape(-1))
        if self._w.size > x.size:
            in_ranges(self._n_panels, lambda start, stop: multiply_pixels(*what, 0, self._n_tiles, start, stop),
                      self._most)
        else:
            in_ranges(self._n_tiles, lambda start, stop: multiply_pixels(*what, start, stop, 0, self._n_panels),
                      self._most)


def suits(spec: ConvSpec) -> bool:
    """Whether a geometry is such a convolution, of float32 and of whole panels, and faster so than by oneDNN."""
    shapes = len(spec.kernel) == 2 or max(spec.stride) == 1
    are_whole = spec.n_output % COLUMNS == 0 and prod(spec.out_shape) // spec.n_output >= LEAST_PIXELS
    return is_fast() and spec.is_pointwise and spec.dtype == np.float32 and shapes and are_whole
