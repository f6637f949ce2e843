"""Images to tiles and back: Bᵀ d B of bottoms, Aᵀ m A into tops, and A gy Aᵀ of tops' gradients."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.winograd.formulas import READ, TILE, into, out_of, spread


@compiled
def transform_bottom(x: np.ndarray, first: int, stop: int, tiles: tuple[int, int], pad: tuple[int, int],
                     v: np.ndarray) -> None:
    """Bᵀ d B of rows of tiles.

    Args:
        x: the bottom (N, H, W, C).
        first, stop: the rows of tiles, by number.
        tiles: rows of tiles in an image, and tiles in a row.
        pad: rows and columns of zeros around an image.
        v: (36, tiles, C); receives the result from tile 0 on.
    """
    n_channels, width = x.shape[3], TILE * tiles[1] + READ - TILE
    strip, half = np.empty((READ, width, n_channels), x.dtype), np.empty((READ, READ * n_channels), x.dtype)
    rows = strip.reshape(READ, width * n_channels)
    for q in range(first, stop):
        _read_strip(x, q // tiles[0], TILE * (q % tiles[0]) - pad[0], pad[1], strip)
        for t in range(tiles[1]):
            place, at = (q - first) * tiles[1] + t, TILE * t * n_channels
            for k in range(READ * n_channels):
                (half[0, k], half[1, k], half[2, k], half[3, k], half[4, k], half[5, k]) = into(
                    rows[0, at + k], rows[1, at + k], rows[2, at + k], rows[3, at + k], rows[4, at + k],
                    rows[5, at + k])
            for i in range(READ):
                m = READ * i
                for c in range(n_channels):
                    (v[m, place, c], v[m + 1, place, c], v[m + 2, place, c], v[m + 3, place, c], v[m + 4, place, c],
                     v[m + 5, place, c]) = into(half[i, c], half[i, n_channels + c], half[i, 2 * n_channels + c],
                                                 half[i, 3 * n_channels + c], half[i, 4 * n_channels + c],
                                                 half[i, 5 * n_channels + c])


@compiled
def _read_strip(x: np.ndarray, image: int, top: int, pad: int, strip: np.ndarray) -> None:
    """Copy six rows of an image, from row ``top`` on, with ``pad`` columns of zeros before it and zeros all around."""
    height, width = x.shape[1], x.shape[2]
    stop = min(width + pad, strip.shape[1])
    for i in range(READ):
        if 0 <= top + i < height:
            strip[i, :pad], strip[i, stop:] = 0, 0
            strip[i, pad:stop] = x[image, top + i, :stop - pad]
        else:
            strip[i] = 0


@compiled
def transform_top(m: np.ndarray, bias: np.ndarray, added: np.ndarray, adds: bool, slope: float, first: int, stop: int,
                  tiles: tuple[int, int], y: np.ndarray) -> None:
    """Aᵀ m A of rows of tiles, plus the bias and what is added, then a ReLU.

    Args:
        m: the products (36, tiles, n_output), from tile 0 on.
        bias: (n_output,).
        added: of y's shape; read only if ``adds``.
        adds: whether to add it.
        slope: the ReLU's below 0; 1 for no ReLU.
        first, stop, tiles: as for ``transform_bottom``.
        y: the top (N, H, W, n_output).
    """
    height, width, n_output = y.shape[1:]
    half = np.empty((TILE, READ * n_output), y.dtype)
    out = np.empty((TILE, n_output), y.dtype)
    for q in range(first, stop):
        image, top = q // tiles[0], TILE * (q % tiles[0])
        for t in range(tiles[1]):
            place = (q - first) * tiles[1] + t
            for j in range(READ):
                for o in range(n_output):
                    at = j * n_output + o
                    half[0, at], half[1, at], half[2, at], half[3, at] = out_of(
                        m[j, place, o], m[j + 6, place, o], m[j + 12, place, o], m[j + 18, place, o],
                        m[j + 24, place, o], m[j + 30, place, o])
            for i in range(min(TILE, height - top)):
                for o in range(n_output):
                    out[0, o], out[1, o], out[2, o], out[3, o] = out_of(
                        half[i, o], half[i, n_output + o], half[i, 2 * n_output + o], half[i, 3 * n_output + o],
                        half[i, 4 * n_output + o], half[i, 5 * n_output + o])
                for j in range(min(TILE, width - TILE * t)):
                    row, column = top + i, TILE * t + j
                    for o in range(n_output):
                        value = out[j, o] + bias[o]
                        if adds:
                            value += added[image, row, column, o]
                        y[image, row, column, o] = value if value > 0 else slope * value


@compiled
def transform_gradient(gy: np.ndarray, first: int, stop: int, tiles: tuple[int, int], m: np.ndarray) -> None:
    """A gy Aᵀ of rows of tiles; zeros beyond the image.

    Args:
        gy: gradient of the top (N, H, W, n_output).
        first, stop, tiles: as for ``transform_bottom``.
        m: (36, tiles, n_output); receives the result from tile 0 on.
    """
    height, width, n_output = gy.shape[1:]
    strip = np.empty((TILE, TILE * tiles[1], n_output), gy.dtype)
    half = np.empty((READ, TILE * n_output), gy.dtype)
    rows = strip.reshape(TILE, TILE * tiles[1] * n_output)
    for q in range(first, stop):
        image, top = q // tiles[0], TILE * (q % tiles[0])
        for i in range(TILE):
            if top + i < height:
                strip[i, :width], strip[i, width:] = gy[image, top + i], 0
            else:
                strip[i] = 0
        for t in range(tiles[1]):
            place, at = (q - first) * tiles[1] + t, TILE * t * n_output
            for k in range(TILE * n_output):
                (half[0, k], half[1, k], half[2, k], half[3, k], half[4, k], half[5, k]) = spread(
                    rows[0, at + k], rows[1, at + k], rows[2, at + k], rows[3, at + k])
            for i in range(READ):
                j = READ * i
                for o in range(n_output):
                    (m[j, place, o], m[j + 1, place, o], m[j + 2, place, o], m[j + 3, place, o], m[j + 4, place, o],
                     m[j + 5, place, o]) = spread(half[i, o], half[i, n_output + o], half[i, 2 * n_output + o],
                                                  half[i, 3 * n_output + o])
