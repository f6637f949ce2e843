"""Pointwise (1 x 1) convolutions for inference, as products of pixels and packed weights."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.register_tiles import COLUMNS
from scaffe.layers.kernels.cpu.arrays import zeros
from scaffe.layers.kernels.cpu.conv.panels import in_panels, is_fast, multiply_pixels, rows_at_once
from scaffe.layers.kernels.cpu.threads.parts import in_units
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls, prepare_units
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import ConvSpec

GROUP_BYTES = 1 << 18  # weights that are read for all pixels before the next ones, and stay in a core's cache
LEAST_PIXELS = 7  # with fewer, reading the weights takes longest, and oneDNN is as fast
LEAST_PRODUCTS = 1 << 21  # of a part: handing one to a thread takes as long as summing them


class Pointwise:
    """An InferencePlan of a geometry for which ``supports`` holds."""

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
        self._splits_panels = self._w.size > self._sizes[0]
        self._length = self._n_panels if self._splits_panels else self._n_tiles

    def set_weights(self, w: np.ndarray, b: np.ndarray) -> None:
        self._w.reshape(self._n_panels, self._k, COLUMNS)[...] = in_panels(w.reshape(-1, self._k).T)
        self._b[...] = b

    def share_weights(self, other: Pointwise) -> None:
        self._w, self._b = other._w, other._b

    def forward(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> None:
        in_units(_multiply, 1, self._length, self._most, *self._arguments(x, y, added))

    def prepare_calls(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> NativeCalls | None:
        return prepare_units(_multiply, 1, self._length, self._most, *self._arguments(x, y, added))

    def _arguments(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None) -> tuple[Any, ...]:
        expect_elems(self._sizes[0], x)
        expect_elems(self._sizes[1], y, added)
        plus = y if added is None else added
        return (self._splits_panels, self._n_tiles, self._n_panels, x.reshape(-1), self._geometry, self._w, self._b,
                plus.reshape(-1), added is not None, self._slope, y.reshape(-1))


@compiled
def _multiply(start: int, stop: int, splits_panels: bool, n_tiles: int, n_panels: int, x: np.ndarray,
              geometry: np.ndarray, w: np.ndarray, bias: np.ndarray, added: np.ndarray, adds: bool, slope: float,
              y: np.ndarray) -> None:
    """``multiply_pixels`` for panels [start, stop) and all tiles, or for tiles [start, stop) and all panels."""
    tiles, panels = ((0, n_tiles), (start, stop)) if splits_panels else ((start, stop), (0, n_panels))
    multiply_pixels(x, geometry, w, bias, added, adds, slope, y, tiles[0], tiles[1], panels[0], panels[1])


def supports(spec: ConvSpec) -> bool:
    """Whether a geometry is pointwise, of float32 and of whole panels, and faster so than by oneDNN."""
    shapes = len(spec.kernel) == 2 or max(spec.stride) == 1
    are_whole = spec.n_output % COLUMNS == 0 and prod(spec.out_shape) // spec.n_output >= LEAST_PIXELS
    return is_fast() and spec.is_pointwise and spec.dtype == np.float32 and shapes and are_whole
