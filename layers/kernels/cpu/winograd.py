"""Winograd's minimal filtering in tiles of 4x4 outputs: F(4x4, 3x3) and F(4x4, 5x5), the transforms, compiled.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016; arXiv:1509.09308), section 4.1:
F(4x4, 3x3) takes 36 products for 16 outputs instead of 144, y = Aᵀ [(G w Gᵀ) ⊙ (Bᵀ d B)] A. Its transpose gives the
gradient of the weights, Gᵀ [(A gy Aᵀ) ⊙ (Bᵀ d B)] G. Each row of tiles of each image has a number q = image * tile rows
+ row. Compiled code applies the small matrices to columns of flat arrays; see ``vectorized``, whose first argument is
the number of weights along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.simd import vectorized

TILE = 4  # outputs of a tile along an axis
TWO, FOUR, FIVE, EIGHT = np.float32(2), np.float32(4), np.float32(5), np.float32(8)
QUARTER, SIXTH, TWELFTH, TWENTY_FOURTH = np.float32(1 / 4), np.float32(1 / 6), np.float32(1 / 12), np.float32(1 / 24)


def input_transform(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[Any, ...]:
    """Bᵀ times six numbers."""
    return (FOUR * a - FIVE * c + e, d + e - FOUR * (b + c), FOUR * (b - c) - d + e, TWO * (d - b) - c + e,
            TWO * (b - d) - c + e, FOUR * b - FIVE * d + f)


def output_transform(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[Any, ...]:
    """Aᵀ times six numbers."""
    even, odd, even2, odd2 = b + c, b - c, d + e, d - e
    return a + even + even2, odd + TWO * odd2, even + FOUR * even2, odd + EIGHT * odd2 + f


def output_gradient_transform(a: float, b: float, c: float, d: float) -> tuple[Any, ...]:
    """A times four numbers."""
    even, odd, even2, odd2 = a + c, b + d, a + FOUR * c, TWO * (b + FOUR * d)
    return a, even + odd, even - odd, even2 + odd2, even2 - odd2, d


def filter_transform(a: float, b: float, c: float) -> tuple[Any, ...]:
    """G times three numbers."""
    outer, middle, even, odd = SIXTH * (a + c), SIXTH * b, TWENTY_FOURTH * a + SIXTH * c, TWELFTH * b
    return QUARTER * a, -outer - middle, middle - outer, even + odd, even - odd, c


def filter_gradient_transform(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[Any, ...]:
    """Gᵀ times six numbers."""
    even, even2 = SIXTH * (b + c), d + e
    return (QUARTER * a - even + TWENTY_FOURTH * even2, SIXTH * (c - b) + TWELFTH * (d - e),
            SIXTH * even2 - even + f)


# Five taps an axis, by Toom and Cook's interpolation at the points 0, 1, -1, 2, -2, 1/2, -1/2 and infinity, as in Lavin
# and Gray's appendix; this Bᵀ is also that of F(6x6, 3x3).
SIXTEEN, HALF, EIGHTH, SIXTEENTH = (np.float32(n) for n in (16, 1 / 2, 1 / 8, 1 / 16))
SPREAD, WIDE, MIDDLE, SLOPE = (np.float32(n) for n in (21 / 4, 17 / 4, 5 / 4, 5 / 2))
ONES, TWOS, HALVES = (np.float32(n) for n in (2 / 9, 1 / 90, 32 / 45))  # one by the product of a point's differences


def input_transform_5(a: float, b: float, c: float, d: float, e: float, f: float, g: float,
                      h: float) -> tuple[Any, ...]:
    """Bᵀ times eight numbers."""
    even, odd = c + g - WIDE * e, b + f - WIDE * d
    even2, odd2 = g + QUARTER * c - MIDDLE * e, HALF * b - SLOPE * d + TWO * f
    even3, odd3 = g + FOUR * c - FIVE * e, TWO * b - SLOPE * d + HALF * f
    return (a - g + SPREAD * (e - c), even + odd, even - odd, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3,
            h - b + SPREAD * (d - f))


def output_transform_5(a: float, b: float, c: float, d: float, e: float, f: float, g: float,
                       h: float) -> tuple[Any, ...]:
    """Aᵀ times eight numbers."""
    even, odd, even2, odd2, even3, odd3 = b + c, b - c, d + e, d - e, f + g, f - g
    return (a + even + even2 + even3, odd + TWO * odd2 + HALF * odd3, even + FOUR * even2 + QUARTER * even3,
            odd + EIGHT * odd2 + EIGHTH * odd3 + h)


def output_gradient_transform_5(a: float, b: float, c: float, d: float) -> tuple[Any, ...]:
    """A times four numbers."""
    even, odd, even2, odd2 = a + c, b + d, a + FOUR * c, TWO * (b + FOUR * d)
    even3, odd3 = a + QUARTER * c, HALF * (b + QUARTER * d)
    return a, even + odd, even - odd, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3, d


def filter_transform_5(a: float, b: float, c: float, d: float, e: float) -> tuple[Any, ...]:
    """G times five numbers."""
    even, odd = ONES * (a + c + e), ONES * (b + d)
    even2, odd2 = TWOS * (a + FOUR * c + SIXTEEN * e), TWOS * (TWO * b + EIGHT * d)
    even3, odd3 = HALVES * (a + QUARTER * c + SIXTEENTH * e), HALVES * (HALF * b + EIGHTH * d)
    return a, -even - odd, odd - even, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3, e


def filter_gradient_transform_5(a: float, b: float, c: float, d: float, e: float, f: float, g: float,
                                h: float) -> tuple[Any, ...]:
    """Gᵀ times eight numbers."""
    even, odd = ONES * (b + c), ONES * (b - c)
    even2, odd2, even3, odd3 = TWOS * (d + e), TWOS * (d - e), HALVES * (f + g), HALVES * (f - g)
    return (a - even + even2 + even3, TWO * odd2 - odd + HALF * odd3, FOUR * even2 - even + QUARTER * even3,
            EIGHT * odd2 - odd + EIGHTH * odd3, SIXTEEN * even2 - even + SIXTEENTH * even3 + h)


input_columns = vectorized({3: input_transform, 5: input_transform_5})
output_columns = vectorized({3: output_transform, 5: output_transform_5})
output_gradient_columns = vectorized({3: output_gradient_transform, 5: output_gradient_transform_5})
filter_columns = vectorized({3: filter_transform, 5: filter_transform_5})
filter_gradient_columns = vectorized({3: filter_gradient_transform, 5: filter_gradient_transform_5})


@compiled
def input_tiles(start: int, stop: int, taps: int, x: np.ndarray, first: int, tiles: tuple[int, int],
                     pad: tuple[int, int], v: np.ndarray) -> None:
    """Compute Bᵀ d B for rows of tiles: first along the image's rows for a whole row of tiles, then along each tile's.

    Rows [start, stop) count from the block's first, which is number ``first`` of all; ``tiles`` is the rows of tiles in
    an image, and the tiles in a row. x is the bottom (N, H, W, C), with ``pad`` rows and columns of zeros around; v
    (products, tiles, C) receives the result for the whole block, its first tile first."""
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
        input_columns(taps, source, at, row, inside, half, pad[1] * n, length)
        for t in range(tiles[1]):
            for i in range(read):
                input_columns(taps, half, i * length + TILE * t * n, n, n, results, read * i * each + place * n, each)
            place += 1


@compiled
def _copy_rows(pixels: np.ndarray, image: int, height: int, top: int, rows: np.ndarray) -> None:
    """Copy rows (rows, elements of a row) of the image that begins at row ``image`` of ``pixels``, the rows of all
    images, flat, from its row ``top`` on, which may be below 0; rows outside of it become zeros."""
    n = rows.shape[1]
    for i in range(rows.shape[0]):
        if 0 <= top + i < height:
            rows[i] = pixels[(image + top + i) * n:(image + top + i + 1) * n]
        else:
            rows[i] = 0


@compiled
def output_images(start: int, stop: int, taps: int, m: np.ndarray, bias: np.ndarray, added: np.ndarray, adds: bool,
                  slope: float, first: int, tiles: tuple[int, int], y: np.ndarray) -> None:
    """Compute Aᵀ m A for rows of tiles, plus the bias (n_output,) and, if ``adds``, ``added`` of y's shape, then a ReLU
    of that slope below 0 (1: none). m is (products, tiles, n_output), from the block's first tile on; y the top (N, H,
    W, n_output); other arguments as for ``input_tiles``."""
    (height, width, n_output), read = y.shape[1:], TILE + taps - 1
    products, each, place = m.reshape(m.size), m.shape[1] * n_output, start * tiles[1]
    half, flat = np.empty(TILE * read * n_output, y.dtype), np.empty(TILE * n_output, y.dtype)
    out = flat.reshape(TILE, n_output)
    for q in range(first + start, first + stop):
        image, top = q // tiles[0], TILE * (q % tiles[0])
        for t in range(tiles[1]):
            for j in range(read):
                output_columns(taps, products, j * each + place * n_output, read * each, n_output, half, j * n_output,
                               read * n_output)
            for i in range(min(TILE, height - top)):
                output_columns(taps, half, i * read * n_output, n_output, n_output, flat, 0, n_output)
                for j in range(min(TILE, width - TILE * t)):
                    row, column = top + i, TILE * t + j
                    for o in range(n_output):
                        value = out[j, o] + bias[o]
                        if adds:
                            value += added[image, row, column, o]
                        y[image, row, column, o] = value if value > 0 else slope * value
            place += 1


@compiled
def output_gradient_tiles(start: int, stop: int, taps: int, gy: np.ndarray, first: int, tiles: tuple[int, int],
                       m: np.ndarray) -> None:
    """Compute A gy Aᵀ for rows of tiles; the gradient (N, H, W, n_output) counts as zero outside of the image.
    Arguments as for ``input_tiles``."""
    (height, width, n_output), read = gy.shape[1:], TILE + taps - 1
    row, each, results = TILE * tiles[1] * n_output, m.shape[1] * n_output, m.reshape(m.size)
    flat, half = np.empty(TILE * row, gy.dtype), np.empty(read * TILE * n_output, gy.dtype)
    block, place = flat.reshape(TILE, TILE * tiles[1], n_output), start * tiles[1]
    for q in range(first + start, first + stop):
        image, top = q // tiles[0], TILE * (q % tiles[0])
        for i in range(TILE):
            if top + i < height:
                block[i, :width], block[i, width:] = gy[image, top + i], 0
            else:
                block[i] = 0
        for t in range(tiles[1]):
            output_gradient_columns(taps, flat, TILE * t * n_output, row, TILE * n_output, half, 0, TILE * n_output)
            for i in range(read):
                output_gradient_columns(taps, half, i * TILE * n_output, n_output, n_output, results,
                               read * i * each + place * n_output, each)
            place += 1


@compiled
def filter_tiles(first: int, stop: int, taps: int, w: np.ndarray, u: np.ndarray) -> None:
    """Compute G w Gᵀ for the filters of input channels [first, stop), from w (outputs, inputs, taps²), with any
    strides, to u (products, inputs, outputs)."""
    n, read = w.shape[0], TILE + taps - 1
    filters, half = np.empty((taps * taps, n), w.dtype), np.empty(read * taps * n, w.dtype)
    flat, results, each = filters.reshape(filters.size), u.reshape(u.size), u.shape[1] * n
    for i in range(first, stop):
        for o in range(n):
            for t in range(taps * taps):
                filters[t, o] = w[o, i, t]
        filter_columns(taps, flat, 0, taps * n, taps * n, half, 0, taps * n)
        for a in range(read):
            filter_columns(taps, half, a * taps * n, n, n, results, a * read * each + i * n, each)


def flipped(w: np.ndarray) -> np.ndarray:
    """A view (..., inputs, outputs, taps²) of weights (..., outputs, inputs, taps²) with each filter rotated by 180
    degrees: the weights of the convolution that computes the bottom's gradient."""
    return np.swapaxes(w, -3, -2)[..., ::-1]


@compiled
def filter_gradient(first: int, stop: int, taps: int, u: np.ndarray, overwrite: bool, gw: np.ndarray) -> None:
    """Add Gᵀ u G, of sums of products u (products, inputs, outputs), to the gradient of the filters of input channels
    [first, stop), gw (outputs, inputs, taps²), or write it if ``overwrite``."""
    n, read = u.shape[2], TILE + taps - 1
    half, found = np.empty(taps * read * n, u.dtype), np.empty((taps * taps, n), u.dtype)
    flat, sums, each = found.reshape(found.size), u.reshape(u.size), u.shape[1] * n
    for i in range(first, stop):
        for b in range(read):
            filter_gradient_columns(taps, sums, b * each + i * n, read * each, n, half, b * n, read * n)
        for r in range(taps):
            filter_gradient_columns(taps, half, r * read * n, n, n, flat, r * taps * n, n)
        for o in range(n):
            for t in range(taps * taps):
                gw[o, i, t] = found[t, o] if overwrite else gw[o, i, t] + found[t, o]
