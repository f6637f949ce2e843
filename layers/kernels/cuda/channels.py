"""Kernels with numbers per channel, on (rows, channels) matrices of the device: biases, moments, learned scales.

Sums over rows take two steps: each thread block writes a partial sum to the arena, then these are added. The order of
additions is fixed, so the same arrays give the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import Part, arena
from scaffe.layers.kernels.cuda.launch import THREADS, columns_grid, kernel, pack, wide
from scaffe.layers.kernels.extents import expect_elems, expect_shape

Pair = tuple[Any, Any]
I = np.int32  # noqa: E741 - the kernels' int
PARTS_AT_ONCE = 16  # MOST_DOWN of rows.cuh


def parts_of(n_rows: int, n_channels: int, dtype: Any) -> Part:
    """Shape and type of the scratch memory for the partial sums of two sums per channel."""
    return (2, columns_grid(n_rows, n_channels, dtype)[0][1], n_channels), wide(dtype)


def sum_parts(name: str, x: Any, arrays: tuple[Any, ...], parts: Any, family: str = "channels") -> None:
    """The first step: launch kernel ``name`` of a family, which writes partial sums over the rows of x to ``parts``."""
    grid, block = columns_grid(x.shape[0], x.shape[1], x.dtype)
    shared = 2 * pack(x.dtype) * THREADS * wide(x.dtype).itemsize
    kernel(family, name, x.dtype)(grid, block, (*arrays, parts, *map(I, x.shape)), shared_mem=shared)


def per_channel(name: str, dtype: Any, n_channels: int, arguments: tuple[Any, ...], family: str = "channels") -> None:
    """The second step: launch kernel ``name`` of a family, whose blocks add the partial sums of 32 channels each."""
    kernel(family, name, np.dtype(dtype))((-(-n_channels // 32),), (32, PARTS_AT_ONCE), arguments)


def by_rows(name: str, x: Any, arguments: tuple[Any, ...], family: str = "channels") -> None:
    """Launch kernel ``name`` of a family over all elements of x (rows, channels)."""
    if x.size:
        grid, block = columns_grid(x.shape[0], x.shape[1], x.dtype)
        kernel(family, name, x.dtype)(grid, block, (*arguments, *map(I, x.shape)))


def numbers(values: Any, dtype: Any) -> Any:
    """Numbers per channel, converted to the type in which kernels take them with arrays of ``dtype``; None stays."""
    return values if values is None or values.dtype == wide(dtype) else values.astype(wide(dtype))


def add_gradients(g: Any, gb: Any, overwrite: bool) -> None:
    """Add the sum over the rows of g (rows, C) to gb (C,), or write it if ``overwrite``."""
    expect_elems(g.shape[1], gb)
    (parts,) = arena.take(parts_of(g.shape[0], g.shape[1], g.dtype))
    sum_parts("sum_gradients", g, (g,), parts)
    per_channel("finish_gradients", g.dtype, g.shape[1],
                (parts, gb, I(not overwrite), I(parts.shape[1]), I(g.shape[1])))


def add_bias(y: Any, b: Any, relu_slope: float | None) -> None:
    """y (rows, C) += b (C,) if given, then a ReLU in place if a slope is given."""
    if b is not None or relu_slope is not None:
        scale_rows(y, None, b, y, None, relu_slope)


def moments(x: Any) -> Pair:
    """Mean and variance of each column, float64 (channels,). The variance divides by the number of rows."""
    (parts,), found = arena.take(parts_of(x.shape[0], x.shape[1], x.dtype)), _doubles(x.shape[1])
    sum_parts("sum_squares", x, (x,), parts)
    per_channel("finish_moments", x.dtype, x.shape[1],
                (x, parts, *found, I(x.shape[0]), I(parts.shape[1]), I(x.shape[1])))
    return found


def scale_rows(x: Any, scale: Any, bias: Any, y: Any, kept: Any = None, relu_slope: float | None = None) -> None:
    """y = x · scale + bias, then a ReLU if a slope is given. y may be x; ``kept`` gets a copy of x first."""
    expect_shape(x.shape, y, kept)
    expect_elems(x.shape[1], scale, bias)
    slope = wide(x.dtype).type(1 if relu_slope is None else relu_slope)
    by_rows("scale_rows", x, (x, numbers(scale, x.dtype), numbers(bias, x.dtype), y, kept, slope))


def scale_sums(x: Any, gy: Any) -> Pair:
    """Sums over the rows of gy · x and of gy, float64 (channels,): the gradients of scale and bias."""
    expect_shape(x.shape, gy)
    (parts,), (products, sums) = arena.take(parts_of(x.shape[0], x.shape[1], x.dtype)), _doubles(x.shape[1])
    sum_parts("sum_products", x, (x, gy), parts)
    per_channel("finish_products", x.dtype, x.shape[1], (parts, sums, products, I(parts.shape[1]), I(x.shape[1])))
    return products, sums


def _doubles(n_channels: int) -> Pair:
    cupy = device.load()
    return cupy.empty(n_channels, np.float64), cupy.empty(n_channels, np.float64)
