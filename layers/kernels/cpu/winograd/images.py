"""Images and filters to tiles and back: Bᵀ d B, Aᵀ m A, A gy Aᵀ; G w Gᵀ and Gᵀ u G."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.winograd.columns import (
    collected_columns,
    filtered_columns,
    into_columns,
    out_of_columns,
    spread_columns,
)
from scaffe.layers.kernels.cpu.winograd.formulas import TILE


@compiled
def transform_bottom(start: int, stop: int, taps: int, x: np.ndarray, first: int, tiles: tuple[int, int],
                     pad: tuple[int, int], v: np.ndarray) -> None:
    """Bᵀ d B of rows of tiles: of a row of tiles' rows of the image at once, then of each tile's columns.

    Args:
        start, stop: the rows of tiles, counted from the strip's first.
        taps: weights along an axis, 3 or 5.
        x: the bottom (N, H, W, C).
        first: number of the strip's first row of tiles.
        tiles: rows of tiles in an image, and tiles in a row.
        pad: rows and columns of zeros around an image.
        v: (products, tiles, C); receives the result, of the strip's first row from its first tile on.
    """
    height, n, read = x.shape[1], x.shape[3], TILE + taps - 1
    row, length, place = x.shape[2] * n, (TILE * tiles[1] + taps - 1) * n, start * tiles[1]
    inside = min(row, length - pad[1] * n)
    pixels, results, each = x.reshape(x.size), v.reshape(v.size), v.shape[1] * n
    edge, half = np.empty(read * row, x.dtype), np.zeros(read * length, x.dtype)
    for q in range(first + start, first + stop):
        image, top = q // tiles[0], TILE * (q % tiles[0]) - pad[0]
        source, at = pixels, (image * height + top) * row
        if top < 0 or top + read > height:
            _copy_rows(pixels, image * height, height, top, edge.reshape(read, row))
            source, at = edge, 0
        into_columns(taps, source, at, row, inside, half, pad[1] * n, length)
        for t in range(tiles[1]):
            for i in range(read):
                into_columns(taps, half, i * length + TILE * t * n, n, n, results, read * i * each + place * n, each)
            place += 1


@compiled
def _copy_rows(pixels: np.ndarray, image: int, height: int, top: int, rows: np.ndarray) -> None:
    """Copy some rows of an image, from row ``top`` on; zeros for those that it has not.

    Args:
        pixels: rows of all images, flat.
        image: the number of the image's first row.
        height: how many it has.
        top: the first to copy.
        rows: receives them.
    """
    n = rows.shape[1]
    for i in range(rows.shape[0]):
        if 0 <= top + i < height:
            rows[i] = pixels[(image + top + i) * n:(image + top + i + 1) * n]
        else:
            rows[i] = 0


@compiled
def transform_top(start: int, stop: int, taps: int, m: np.ndarray, bias: np.ndarray, added: np.ndarray, adds: bool,
                  slope: float, first: int, tiles: tuple[int, int], y: np.ndarray) -> None:
    """Aᵀ m A of rows of tiles, plus the bias and what is added, then a ReLU.

    Args:
        start, stop, taps: as for ``transform_bottom``.
        m: (products, tiles, n_output), from the strip's first tile on.
        bias: (n_output,).
        added: of y's shape; read only if ``adds``.
        adds: whether to add it.
        slope: the ReLU's below 0; 1 for no ReLU.
        first, tiles: as for ``transform_bottom``.
        y: the top (N, H, W, n_output).
    """
    (height, width, n_output), read = y.shape[1:], TILE + taps - 1
    products, each, place = m.reshape(m.size), m.shape[1] * n_output, start * tiles[1]
    half, flat = np.empty(TILE * read * n_output, y.dtype), np.empty(TILE * n_output, y.dtype)
    out = flat.reshape(TILE, n_output)
    for q in range(first + start, first + stop):
        image, top = q // tiles[0], TILE * (q % tiles[0])
        for t in range(tiles[1]):
            for j in range(read):
                out_of_columns(taps, products, j * each + place * n_output, read * each, n_output, half, j * n_output,
                               read * n_output)
            for i in range(min(TILE, height - top)):
                out_of_columns(taps, half, i * read * n_output, n_output, n_output, flat, 0, n_output)
                for j in range(min(TILE, width - TILE * t)):
                    row, column = top + i, TILE * t + j
                    for o in range(n_output):
                        value = out[j, o] + bias[o]
                        if adds:
                            value += added[image, row, column, o]
                        y[image, row, column, o] = value if value > 0 else slope * value
            place += 1


@compiled
def transform_gradient(start: int, stop: int, taps: int, gy: np.ndarray, first: int, tiles: tuple[int, int],
                       m: np.ndarray) -> None:
    """A gy Aᵀ of rows of tiles; zeros beyond the image.

    Args:
        start, stop, taps, first, tiles: as for ``transform_bottom``.
        gy: gradient of the top (N, H, W, n_output).
        m: (products, tiles, n_output); receives the result, as v of ``transform_bottom``.
    """
    (height, width, n_output), read = gy.shape[1:], TILE + taps - 1
    row, each, results = TILE * tiles[1] * n_output, m.shape[1] * n_output, m.reshape(m.size)
    flat, half = np.empty(TILE * row, gy.dtype), np.empty(read * TILE * n_output, gy.dtype)
    strip, place = flat.reshape(TILE, TILE * tiles[1], n_output), start * tiles[1]
    for q in range(first + start, first + stop):
        image, top = q // tiles[0], TILE * (q % tiles[0])
        for i in range(TILE):
            if top + i < height:
                strip[i, :width], strip[i, width:] = gy[image, top + i], 0
            else:
                strip[i] = 0
        for t in range(tiles[1]):
            spread_columns(taps, flat, TILE * t * n_output, row, TILE * n_output, half, 0, TILE * n_output)
            for i in range(read):
                spread_columns(taps, half, i * TILE * n_output, n_output, n_output, results,
                               read * i * each + place * n_output, each)
            place += 1


@compiled
def transform_weights(first: int, stop: int, taps: int, w: np.ndarray, u: np.ndarray) -> None:
    """G w Gᵀ of the filters of some inputs.

    Args:
        first, stop: the inputs.
        taps: weights along an axis, 3 or 5.
        w: (outputs, inputs, taps²), with any strides.
        u: (products, inputs, outputs).
    """
    n, read = w.shape[0], TILE + taps - 1
    filters, half = np.empty((taps * taps, n), w.dtype), np.empty(read * taps * n, w.dtype)
    flat, results, each = filters.reshape(filters.size), u.reshape(u.size), u.shape[1] * n
    for i in range(first, stop):
        for o in range(n):
            for t in range(taps * taps):
                filters[t, o] = w[o, i, t]
        filtered_columns(taps, flat, 0, taps * n, taps * n, half, 0, taps * n)
        for a in range(read):
            filtered_columns(taps, half, a * taps * n, n, n, results, a * read * each + i * n, each)


def turned(w: np.ndarray) -> np.ndarray:
    """A view (..., inputs, outputs, taps²) of weights (..., outputs, inputs, taps²), each filter turned by 180 degrees:
    what carries the top's gradient to the bottom."""
    return np.swapaxes(w, -3, -2)[..., ::-1]


@compiled
def collect_gradient(first: int, stop: int, taps: int, u: np.ndarray, overwrite: bool, gw: np.ndarray) -> None:
    """Gᵀ u G, added to the gradient of the filters of some inputs.

    Args:
        first, stop: the inputs.
        taps: weights along an axis, 3 or 5.
        u: sums of products (products, inputs, outputs).
        overwrite: write instead of adding.
        gw: (outputs, inputs, taps²).
    """
    n, read = u.shape[2], TILE + taps - 1
    half, found = np.empty(taps * read * n, u.dtype), np.empty((taps * taps, n), u.dtype)
    flat, sums, each = found.reshape(found.size), u.reshape(u.size), u.shape[1] * n
    for i in range(first, stop):
        for b in range(read):
            collected_columns(taps, sums, b * each + i * n, read * each, n, half, b * n, read * n)
        for r in range(taps):
            collected_columns(taps, half, r * read * n, n, n, flat, r * taps * n, n)
        for o in range(n):
            for t in range(taps * taps):
                gw[o, i, t] = found[t, o] if overwrite else gw[o, i, t] + found[t, o]
