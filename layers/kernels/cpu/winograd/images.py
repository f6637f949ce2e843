"""Images to tiles and back: Bᵀ d B of bottoms, Aᵀ m A into tops, and A gy Aᵀ of tops' gradients."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.winograd.columns import into_columns, out_of_columns, spread_columns
from scaffe.layers.kernels.cpu.winograd.formulas import READ, TILE


@compiled
def transform_bottom(x: np.ndarray, first: int, stop: int, tiles: tuple[int, int], pad: tuple[int, int],
                     v: np.ndarray, place: int) -> None:
    """Bᵀ d B of rows of tiles: of six rows of the image at once, then of each tile's columns.

    Args:
        x: the bottom (N, H, W, C).
        first, stop: the rows of tiles, by number.
        tiles: rows of tiles in an image, and tiles in a row.
        pad: rows and columns of zeros around an image.
        v: (36, tiles, C); receives the result.
        place: the tile of v that the first one goes to.
    """
    height, n = x.shape[1], x.shape[3]
    row, length = x.shape[2] * n, (TILE * tiles[1] + READ - TILE) * n
    inside = min(row, length - pad[1] * n)
    pixels, results, each = x.reshape(x.size), v.reshape(v.size), v.shape[1] * n
    edge, half = np.empty(READ * row, x.dtype), np.zeros(READ * length, x.dtype)
    for q in range(first, stop):
        image, top = q // tiles[0], TILE * (q % tiles[0]) - pad[0]
        source, at = pixels, (image * height + top) * row
        if top < 0 or top + READ > height:
            _copy_rows(pixels, image * height, height, top, edge)
            source, at = edge, 0
        into_columns(source, at, row, inside, half, pad[1] * n, length)
        for t in range(tiles[1]):
            for i in range(READ):
                into_columns(half, i * length + TILE * t * n, n, n, results, READ * i * each + place * n, each)
            place += 1


@compiled
def _copy_rows(pixels: np.ndarray, image: int, height: int, top: int, rows: np.ndarray) -> None:
    """Copy six rows of an image, from row ``top`` on; zeros for those that it has not.

    Args:
        pixels: rows of all images.
        image: the number of the image's first row.
        height: how many it has.
        top: the first to copy.
        rows: receives them.
    """
    n = rows.size // READ
    for i in range(READ):
        if 0 <= top + i < height:
            rows[i * n:(i + 1) * n] = pixels[(image + top + i) * n:(image + top + i + 1) * n]
        else:
            rows[i * n:(i + 1) * n] = 0


@compiled
def transform_top(m: np.ndarray, place: int, bias: np.ndarray, added: np.ndarray, adds: bool, slope: float, first: int,
                  stop: int, tiles: tuple[int, int], y: np.ndarray) -> None:
    """Aᵀ m A of rows of tiles, plus the bias and what is added, then a ReLU.

    Args:
        m: the products (36, tiles, n_output).
        place: the tile of m that is the first.
        bias: (n_output,).
        added: of y's shape; read only if ``adds``.
        adds: whether to add it.
        slope: the ReLU's below 0; 1 for no ReLU.
        first, stop, tiles: as for ``transform_bottom``.
        y: the top (N, H, W, n_output).
    """
    height, width, n_output = y.shape[1:]
    products, each = m.reshape(m.size), m.shape[1] * n_output
    half, flat = np.empty(TILE * READ * n_output, y.dtype), np.empty(TILE * n_output, y.dtype)
    out = flat.reshape(TILE, n_output)
    for q in range(first, stop):
        image, top = q // tiles[0], TILE * (q % tiles[0])
        for t in range(tiles[1]):
            for j in range(READ):
                out_of_columns(products, j * each + place * n_output, READ * each, n_output, half, j * n_output,
                               READ * n_output)
            for i in range(min(TILE, height - top)):
                out_of_columns(half, i * READ * n_output, n_output, n_output, flat, 0, n_output)
                for j in range(min(TILE, width - TILE * t)):
                    row, column = top + i, TILE * t + j
                    for o in range(n_output):
                        value = out[j, o] + bias[o]
                        if adds:
                            value += added[image, row, column, o]
                        y[image, row, column, o] = value if value > 0 else slope * value
            place += 1


@compiled
def transform_gradient(gy: np.ndarray, first: int, stop: int, tiles: tuple[int, int], m: np.ndarray,
                       place: int) -> None:
    """A gy Aᵀ of rows of tiles; zeros beyond the image.

    Args:
        gy: gradient of the top (N, H, W, n_output).
        first, stop, tiles: as for ``transform_bottom``.
        m: (36, tiles, n_output); receives the result.
        place: the tile of m that the first one goes to.
    """
    height, width, n_output = gy.shape[1:]
    row, each, results = TILE * tiles[1] * n_output, m.shape[1] * n_output, m.reshape(m.size)
    flat, half = np.empty(TILE * row, gy.dtype), np.empty(READ * TILE * n_output, gy.dtype)
    strip = flat.reshape(TILE, TILE * tiles[1], n_output)
    for q in range(first, stop):
        image, top = q // tiles[0], TILE * (q % tiles[0])
        for i in range(TILE):
            if top + i < height:
                strip[i, :width], strip[i, width:] = gy[image, top + i], 0
            else:
                strip[i] = 0
        for t in range(tiles[1]):
            spread_columns(flat, TILE * t * n_output, row, TILE * n_output, half, 0, TILE * n_output)
            for i in range(READ):
                spread_columns(half, i * TILE * n_output, n_output, n_output, results,
                               READ * i * each + place * n_output, each)
            place += 1
