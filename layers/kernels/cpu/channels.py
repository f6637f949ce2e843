"""Kernels with numbers per channel, on (rows, channels) matrices: sums and moments of columns, biases, scales."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod
from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import real, stored
from scaffe.layers.kernels.cpu.arrays import as_bits, wide, zeros
from scaffe.layers.kernels.cpu.elementwise import are_one, relu_forward
from scaffe.layers.kernels.cpu.threads.parts import LINE, in_parts, in_units
from scaffe.layers.kernels.extents import expect_elems, expect_shape

WIDE = np.float64  # sums over many rows lose digits in float32
BLOCK = 32  # rows that are summed in their own type before their sum is added in float64
STREAMS, STEPS = 4, 8  # a block is STEPS rows of STREAMS parts of a chunk
CHUNK_ELEMS, MOST_CHUNKS = 1 << 16, 64


def in_chunks(kernel: Callable[..., Any], n_sums: int, x: np.ndarray, *rest: Any) -> tuple[np.ndarray, int]:
    """Call ``kernel(first, stop, n_each, x, *rest, sums)`` for ranges of chunks of rows of x (rows, columns), on
    threads.

    The kernel writes the sums of chunks [first, stop); chunk i has the ``n_each`` rows from i · n_each on, or those
    that are left. ``sums`` is (chunks, n_sums, columns), float64, zero. The kernel gets bfloat16 arrays as their bits.
    Returns the sums and n_each, both of which depend on x's shape alone."""
    n_rows, n_columns = x.shape
    n_each = -(-max(CHUNK_ELEMS // max(n_columns, 1), n_rows // MOST_CHUNKS, 1) // BLOCK) * BLOCK
    n_chunks = -(-n_rows // n_each)
    shape = max(n_chunks, 1), n_sums, n_columns  # without rows the sums are 0
    sums = zeros(prod(shape), WIDE).reshape(shape)
    in_units(kernel, 1, n_chunks, None, n_each, as_bits(x), *map(_as_bits, rest), sums)
    return sums, n_each


def column_sums(kernel: Callable[..., Any], n_sums: int, x: np.ndarray, *rest: Any) -> np.ndarray:
    """The sums over all rows, float64 (n_sums, columns); see ``in_chunks``."""
    total: np.ndarray = in_chunks(kernel, n_sums, x, *rest)[0].sum(0)
    return total


def _as_bits(argument: Any) -> Any:
    return as_bits(argument) if isinstance(argument, np.ndarray) else argument


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each column, float64 (channels,). The variance divides by the number of rows."""
    within = np.dtype(WIDE) if len(x) <= BLOCK else wide(x.dtype)
    found, n_each = in_chunks(_moments, 2, x, np.zeros(0, within))
    mean, squares = found[0]
    _join(found, n_each, len(x))
    return mean, np.maximum(squares / max(len(x), 1), 0)


@compiled
def _moments(first: int, stop: int, n_each: int, x: np.ndarray, like: np.ndarray, found: np.ndarray) -> None:
    """Write each chunk's mean and sum of squared deviations. A block's sums, in the type of ``like``, are of deviations
    from the mean of the rows before it (Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", The
    American Statistician, 1983)."""
    n = x.shape[1]
    center, sums, squares = np.zeros(n, like.dtype), np.zeros(n, like.dtype), np.zeros(n, like.dtype)
    for chunk in range(first, stop):
        top, n_rows, done = chunk * n_each, min(n_each, x.shape[0] - chunk * n_each), 0
        mean, total, apart = found[chunk, 0], found[chunk, 1], n_rows // STREAMS
        for c in range(n):
            mean[c] = real(x[top, c])
        for step in range(0, apart, STEPS):
            center[:], sums[:], squares[:] = mean, 0, 0
            n_steps = min(STEPS, apart - step)
            for r in range(top + step, top + step + n_steps):
                for c in range(n):
                    c0, c1 = real(x[r, c]) - center[c], real(x[r + apart, c]) - center[c]
                    c2, c3 = real(x[r + 2 * apart, c]) - center[c], real(x[r + 3 * apart, c]) - center[c]
                    sums[c] += (c0 + c1) + (c2 + c3)
                    squares[c] += (c0 * c0 + c1 * c1) + (c2 * c2 + c3 * c3)
            _add_block(center, sums, squares, done, STREAMS * n_steps, mean, total)
            done += STREAMS * n_steps
        for r in range(top + done, top + n_rows):
            for c in range(n):
                center[c], sums[c] = mean[c], real(x[r, c]) - mean[c]
                squares[c] = sums[c] * sums[c]
            _add_block(center, sums, squares, done, 1, mean, total)
            done += 1


@compiled(inline="always")
def _add_block(center: np.ndarray, sums: np.ndarray, squares: np.ndarray, before: int, n_rows: int, mean: np.ndarray,
               total: np.ndarray) -> None:
    """Add a block of ``n_rows`` rows, with sums of deviations from ``center``, to the mean and the total of the
    ``before`` rows before it."""
    each, share = 1 / n_rows, n_rows / (before + n_rows)
    for c in range(mean.size):
        step = sums[c] * each  # of the block's mean from the center
        total[c] += squares[c] - step * sums[c]
        step += center[c] - mean[c]
        total[c] += step * step * before * share
        mean[c] += step * share


@compiled
def _join(found: np.ndarray, n_each: int, n_rows: int) -> None:
    """Combine all chunks' means and totals in those of the first chunk."""
    mean, total = found[0, 0], found[0, 1]
    for chunk in range(1, found.shape[0]):
        before = chunk * n_each
        n = min(n_each, n_rows - before)
        share = n / (before + n)
        for c in range(found.shape[2]):
            step = found[chunk, 0, c] - mean[c]
            total[c] += found[chunk, 1, c] + step * step * before * share
            mean[c] += step * share


def add_bias(y: np.ndarray, b: np.ndarray | None, relu_slope: float | None) -> None:
    """y (rows, C) += b (C,) if given, then a ReLU in place if a slope is given."""
    if b is not None:
        y += b
    if relu_slope is not None:
        from scaffe.layers.kernels.cpu.elementwise import relu_forward

        relu_forward(y.reshape(-1), y.reshape(-1), relu_slope)


def add_gradients(g: np.ndarray, gb: np.ndarray, overwrite: bool) -> None:
    """Add the sum over the rows of g (rows, C) to gb (C,), or write it if ``overwrite``. Raises LayerError for another
    gb."""
    expect_elems(g.shape[1], gb)
    beside = LINE // gcd(gb.size, LINE)  # rows that together fill whole cache lines
    rows = g.reshape(-1, beside * gb.size) if len(g) % beside == 0 and g.flags.c_contiguous else g
    total = column_sums(_add_up, 1, rows, np.zeros(0, wide(g.dtype))).reshape(-1, gb.size).sum(0)
    gb[...] = total if overwrite else gb + total.astype(gb.dtype)


@compiled
def _add_up(first: int, stop: int, n_each: int, g: np.ndarray, like: np.ndarray, sums: np.ndarray) -> None:
    n = g.shape[1]
    block = np.zeros(n, like.dtype)
    for chunk in range(first, stop):
        top, n_rows, total = chunk * n_each, min(n_each, g.shape[0] - chunk * n_each), sums[chunk, 0]
        apart = n_rows // STREAMS
        for step in range(0, apart, STEPS):
            for r in range(top + step, top + min(step + STEPS, apart)):
                for c in range(n):
                    block[c] += ((real(g[r, c]) + real(g[r + apart, c]))
                                 + (real(g[r + 2 * apart, c]) + real(g[r + 3 * apart, c])))
            for c in range(n):
                total[c] += block[c]
                block[c] = 0
        for r in range(top + STREAMS * apart, top + n_rows):
            for c in range(n):
                total[c] += real(g[r, c])


def scale_rows(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, y: np.ndarray, kept: np.ndarray | None = None,
               relu_slope: float | None = None) -> None:
    """y = x · scale + bias, then a ReLU if a slope is given. y may be x; ``kept`` gets a copy of x first."""
    expect_shape(x.shape, y, kept)
    expect_elems(x.shape[1], scale, bias)
    if kept is not None:
        in_parts(_scale_rows_keeping, (y, x, kept), scale, bias)
    elif are_one(x, y):
        in_parts(_scale_rows, (y,), None, scale, bias)
    else:
        in_parts(_scale_rows, (y, x), scale, bias)
    if relu_slope is not None:
        relu_forward(y.reshape(-1), y.reshape(-1), relu_slope)


@compiled
def _scale_rows(y: np.ndarray, x: np.ndarray | None, scale: np.ndarray, bias: np.ndarray) -> None:
    for r in range(y.shape[0]):
        for c in range(y.shape[1]):
            y[r, c] = stored(real(y[r, c] if x is None else x[r, c]) * scale[c] + bias[c], y[r, c])


@compiled
def _scale_rows_keeping(y: np.ndarray, x: np.ndarray, kept: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> None:
    """y may be x: a row is copied before it is written."""
    for r in range(y.shape[0]):
        for c in range(y.shape[1]):
            kept[r, c] = x[r, c]
        for c in range(y.shape[1]):
            y[r, c] = stored(real(kept[r, c]) * scale[c] + bias[c], y[r, c])


def scale_sums(x: np.ndarray, gy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums over the rows of gy · x and of gy, float64 (channels,): the gradients of scale and bias."""
    expect_shape(x.shape, gy)
    products, sums = column_sums(_scale_sums, 2, x, gy, np.zeros(0, wide(x.dtype)))
    return products, sums


@compiled
def _scale_sums(first: int, stop: int, n_each: int, x: np.ndarray, gy: np.ndarray, like: np.ndarray,
                found: np.ndarray) -> None:
    n = x.shape[1]
    product, total = np.zeros(n, like.dtype), np.zeros(n, like.dtype)
    for chunk in range(first, stop):
        top, n_rows = chunk * n_each, min(n_each, x.shape[0] - chunk * n_each)
        products, sums, apart = found[chunk, 0], found[chunk, 1], n_rows // STREAMS
        for step in range(0, apart, STEPS):
            for r in range(top + step, top + min(step + STEPS, apart)):
                for c in range(n):
                    g0, g1 = real(gy[r, c]), real(gy[r + apart, c])
                    g2, g3 = real(gy[r + 2 * apart, c]), real(gy[r + 3 * apart, c])
                    total[c] += (g0 + g1) + (g2 + g3)
                    product[c] += ((g0 * real(x[r, c]) + g1 * real(x[r + apart, c]))
                                   + (g2 * real(x[r + 2 * apart, c]) + g3 * real(x[r + 3 * apart, c])))
            for c in range(n):
                products[c] += product[c]
                sums[c] += total[c]
                product[c], total[c] = 0, 0
        for r in range(top + STREAMS * apart, top + n_rows):
            for c in range(n):
                products[c] += real(gy[r, c]) * real(x[r, c])
                sums[c] += real(gy[r, c])
