"""Matrix products with weights packed in panels of columns, with bias, a sum and a ReLU in the same pass, and pointwise
(1 x 1) convolutions for inference by them.

The next panel's weights and the array to add are prefetched while products are summed, so they need not be in a
cache."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.register_tiles import COLUMNS, register_tile
from scaffe.jit.simd import HAS_AMX, HAS_AVX512, HAS_FMA
from scaffe.layers.kernels.cpu.arrays import zeros
from scaffe.layers.kernels.cpu.threads.parts import LINE, in_units
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls, prepare_units
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import ConvSpec

TALL, SHORT = (8, 7) if HAS_AVX512 else (6, 4)
"""Rows of a register tile: as many as fit, and one number less (images are often 7, 14, 28, ... wide)."""
LINES = COLUMNS // LINE  # cache lines of a panel's row
GEOMETRY = ("k", "group", "n_lines", "in_lines", "line_step", "width", "in_width", "step")
"""Inputs; panels that are read for all pixels before the next ones; rows of an image of y, rows of an image of x, and
the stride of rows; pixels of a row of y, pixels of a row of x, and the stride of pixels."""
_one, _short, _tall = register_tile(1), register_tile(SHORT), register_tile(TALL)


def is_fast() -> bool:
    """Whether the processor is of a kind on which these kernels were measured to be faster than oneDNN: with AVX2 or
    AVX-512."""
    return HAS_FMA


@compiled(inline="always")
def rows_at_once(n_rows: int) -> int:
    """Rows of a tile for ``n_rows`` rows: SHORT where these are a multiple, and it is hardly slower than TALL."""
    return SHORT if n_rows % SHORT == 0 and HAS_AVX512 else TALL


def in_panels(w: np.ndarray) -> np.ndarray:
    """Weights (..., inputs, outputs), of a multiple of COLUMNS outputs, in the packed order that ``multiply_pixels``
    and ``multiply_matrices`` take: a view, (..., panels, inputs, COLUMNS)."""
    return np.swapaxes(w.reshape(*w.shape[:-1], -1, COLUMNS), -3, -2)


@compiled(inline="always")
def multiply_few(n: int, x: Any, w: Any, bias: Any, added: Any, adds: bool, slope: float, y: Any,
                 places: Any) -> None:
    """Multiply n rows, at most TALL, by one panel; see ``register_tile``."""
    if n == TALL:
        _tall(x, w, bias, added, adds, slope, y, places)
        return
    if n >= SHORT:
        _short(x, w, bias, added, adds, slope, y, places)
    at, step, k, panel, ahead, column, to, stride = places
    for i in range(SHORT if n >= SHORT else 0, n):
        _one(x, w, bias, added, adds, slope, y,
             (at + i * step, step, k, panel, ahead, column, to + i * stride, stride))


@compiled
def multiply_pixels(x: np.ndarray, geometry: np.ndarray, w: np.ndarray, bias: np.ndarray, added: np.ndarray, adds: bool,
                    slope: float, y: np.ndarray, tiles: int, last_tile: int, panels: int, last_panel: int) -> None:
    """y = relu(x w + bias + added) for a range of tiles, each of at most ``rows_at_once`` pixels, and one of panels.
    Arrays are flat, as ``register_tile`` takes them; w in the order of ``in_panels``; geometry as GEOMETRY, int64; bias
    (outputs,)."""
    k, group, n_lines, in_lines, line_step, width, in_width, step = geometry
    at_once, n_outputs = rows_at_once(width), bias.size
    in_line = -(-width // at_once)
    for start in range(panels, last_panel, group):
        end = min(start + group, last_panel)
        for t in range(tiles, last_tile):
            line, column = t // in_line, t % in_line * at_once
            n, row = min(at_once, width - column), line * width + column
            at = ((line // n_lines * in_lines + line % n_lines * line_step) * in_width + column * step) * k
            for p in range(start, end):
                panel = p * k * COLUMNS
                is_early = t - tiles < LINES and p + group < last_panel
                ahead = panel + group * k * COLUMNS + (t - tiles) * LINE if is_early else panel
                multiply_few(n, x, w, bias, added, adds, slope, y, (
                    at, step * k, k, panel, ahead, p * COLUMNS, row * n_outputs + p * COLUMNS, n_outputs))


@compiled
def multiply_matrices(x: np.ndarray, x_shape: tuple[int, int, int], k: int, w: np.ndarray, zeros: np.ndarray,
                      y: np.ndarray, n_outputs: int, first: int, stop: int) -> None:
    """y = x w for matrices [first, stop) of a batch, flat; w in the order of ``in_panels``. ``x_shape`` is the rows of
    a matrix, the distance of matrices in rows, and the elements of a row; k the inputs; zeros (outputs,); y has
    ``n_outputs`` elements a row."""
    n_rows, rows, n_inputs = x_shape
    at_once, n_panels = rows_at_once(n_rows), zeros.size // COLUMNS
    for q in range(first, stop):
        for p in range(n_panels):
            panel = (q * n_panels + p) * k * COLUMNS
            for t in range(0, n_rows, at_once):
                is_early = t // at_once < LINES and (q + 1 < stop or p + 1 < n_panels)
                ahead = panel + k * COLUMNS + t // at_once * LINE if is_early else panel
                row = q * rows + t
                multiply_few(min(at_once, n_rows - t), x, w, zeros, y, False, np.float32(1), y, (
                    row * n_inputs, n_inputs, k, panel, ahead, p * COLUMNS, row * n_outputs + p * COLUMNS, n_outputs))


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
    """Whether a geometry is pointwise, of float32 and of whole panels, and faster so than by oneDNN; on processors with
    AMX that is as fast."""
    shapes = len(spec.kernel) == 2 or max(spec.stride) == 1
    are_whole = spec.n_output % COLUMNS == 0 and prod(spec.out_shape) // spec.n_output >= LEAST_PIXELS
    is_faster = is_fast() and not HAS_AMX
    return is_faster and spec.is_pointwise and spec.dtype == np.float32 and shapes and are_whole
