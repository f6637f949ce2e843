"""Convolutions with one weight a channel, forward alone: products of pixels and weights."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit import checks_bounds, compiled
from scaffe.jit.native import address_of, array_at
from scaffe.jit.tiles import COLUMNS
from scaffe.layers.kernels.cpu.calls import HEAD, Calls, in_native_parts
from scaffe.layers.kernels.cpu.memory import zeros
from scaffe.layers.kernels.cpu.native_parts import next_part
from scaffe.layers.kernels.cpu.onednn.primitive import place_of
from scaffe.layers.kernels.cpu.panels import in_panels, is_fast, multiply_pixels, rows_at_once
from scaffe.layers.kernels.cpu.parts import in_ranges
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import ConvSpec

GROUP_BYTES = 1 << 18  # of weights that are read for all pixels before the next: they stay in a core's cache
LEAST_PIXELS = 7  # fewer are read as slowly as weights
N_NUMBERS = 18  # of a bound call's table
LEAST_PRODUCTS = 1 << 21  # of a thread: handing over a part costs what summing them does


class Pointwise:
    """One geometry, for which ``suits`` holds; see ``InferencePlan``.

    Args:
        spec: the geometry.
        relu_slope: slope below 0 of a ReLU at the end; None: no ReLU.
    """

    def __init__(self, spec: ConvSpec, relu_slope: float | None) -> None:
        n, self._k, *image = spec.in_shape
        self._slope, n_pixels = np.array([1 if relu_slope is None else relu_slope], np.float32), n * prod(image)
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
                added is not None, self._slope[0], y.reshape(-1))
        if self._w.size > x.size:
            in_ranges(self._n_panels, lambda start, stop: multiply_pixels(*what, 0, self._n_tiles, start, stop),
                      self._most)
        else:
            in_ranges(self._n_tiles, lambda start, stop: multiply_pixels(*what, start, stop, 0, self._n_panels),
                      self._most)

    def bind(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> Calls | None:
        """See InferencePlan."""
        if checks_bounds():  # native code has nobody to raise to
            return None
        expect_elems(self._sizes[0], x)
        expect_elems(self._sizes[1], y, added)
        arrays = x, self._geometry, self._w, self._b, y if added is None else added, self._slope, y
        numbers = [number for array in arrays for number in (place_of(array), array.size)]
        splits_panels = self._w.size > x.size
        return in_native_parts(_entry(), self._n_panels if splits_panels else self._n_tiles, self._most,
                               [*numbers, added is not None, splits_panels, self._n_tiles, self._n_panels], arrays)


@compiled
def _multiply_parts(place: int) -> None:
    """Do parts of the products that the table at an address describes, as ``bind`` writes it, until none is left."""
    table = array_at(place + 8 * HEAD, N_NUMBERS, np.int64)
    x, geometry = array_at(table[0], table[1], np.float32), array_at(table[2], table[3], np.int64)
    w, b = array_at(table[4], table[5], np.float32), array_at(table[6], table[7], np.float32)
    added, y = array_at(table[8], table[9], np.float32), array_at(table[12], table[13], np.float32)
    slope, adds = array_at(table[10], table[11], np.float32)[0], table[14] != 0
    part, start, stop = next_part(place)
    while part >= 0:
        if table[15]:
            multiply_pixels(x, geometry, w, b, added, adds, slope, y, 0, table[16], start, stop)
        else:
            multiply_pixels(x, geometry, w, b, added, adds, slope, y, start, stop, 0, table[17])
        part, start, stop = next_part(place)


@compiled
def _entry() -> int:
    """Where native code calls it."""
    place: int = address_of(_multiply_parts)
    return place


def suits(spec: ConvSpec) -> bool:
    """Whether a geometry is such a convolution, of float32 and of whole panels, and faster so than by oneDNN."""
    shapes = len(spec.kernel) == 2 or max(spec.stride) == 1
    are_whole = spec.n_output % COLUMNS == 0 and prod(spec.out_shape) // spec.n_output >= LEAST_PIXELS
    return is_fast() and spec.is_pointwise and spec.dtype == np.float32 and shapes and are_whole
