"""Products of rows and weights that lie in panels of columns, with what follows a convolution in the same pass.

The next panels' weights and what is added are fetched while products are summed, so that they need not lie in a cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.simd import HAS_AMX, HAS_AVX512, HAS_FMA
from scaffe.jit.tiles import COLUMNS, tile
from scaffe.layers.kernels.cpu.threads.parts import LINE

TALL, SHORT = (8, 7) if HAS_AVX512 else (6, 4)
"""Rows at once: as many as registers hold sums of, and the next fewer (images are often 7, 14, 28, ... wide)."""
LINES = COLUMNS // LINE  # of the cache, that a row of a panel takes
GEOMETRY = ("k", "group", "n_lines", "in_lines", "line_step", "width", "in_width", "step")
"""Of pixels: inputs; panels that are read for all pixels before the others are; lines of y in an image, of x in an
image, and of x from one that is read to the next; pixels of a line of y, of x, and of x from one that is read to the
next."""
_one, _short, _tall = tile(1), tile(SHORT), tile(TALL)


def is_fast() -> bool:
    """Whether tiles fit the processor's registers, and it is of a kind on which they were measured to be faster than
    oneDNN: one with AVX2 or AVX-512, and without AMX."""
    return HAS_FMA and not HAS_AMX


@compiled(inline="always")
def rows_at_once(n_rows: int) -> int:
    """How many rows of so many to multiply at once: SHORT where none is left so, and it is hardly slower than TALL."""
    return SHORT if n_rows % SHORT == 0 and HAS_AVX512 else TALL


def in_panels(w: np.ndarray) -> np.ndarray:
    """Weights as ``multiply_pixels`` and ``multiply_matrices`` take them.

    Args:
        w: (..., inputs, outputs), the outputs a multiple of COLUMNS.

    Returns:
        a view, (..., panels, inputs, COLUMNS).
    """
    return np.swapaxes(w.reshape(*w.shape[:-1], -1, COLUMNS), -3, -2)


@compiled(inline="always")
def multiply_few(n: int, x: Any, w: Any, bias: Any, added: Any, adds: bool, slope: float, y: Any,
                 places: Any) -> None:
    """n rows, at most TALL, by one panel; see ``tile``."""
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
    """y = x w + bias, and what follows, of some pixels of images' lines and some panels.

    Args:
        x, w, added, y: flat, as ``tile`` takes them; w of ``in_panels``.
        geometry: int64, of GEOMETRY.
        bias: (outputs,).
        adds, slope: see ``tile``.
        tiles, last_tile: the first tile of at most ``rows_at_once`` pixels, and where they stop.
        panels, last_panel: the first panel, and where they stop.
    """
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
    """Products ``first`` to ``stop`` of a row of matrices: y = x w.

    Args:
        x: flat; ``x_shape`` is matrices' rows, the rows that a matrix takes in x and y, and the elements of a row.
        k: inputs.
        w: of ``in_panels``, flat.
        zeros: (outputs,).
        y: flat; ``n_outputs`` elements a row.
    """
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
