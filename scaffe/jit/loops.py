"""Small functions for compiled code: copy and clear elements, mirror and convert rows of pixels, a vectorized exp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial, log
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import Definition, intrinsic, stored


@compiled(inline="always")
def copy_elements(x: np.ndarray, at: int, y: np.ndarray, to: int, n_elems: int) -> None:
    """y[to + i] = x[at + i]."""
    start, end = np.uint64(at), np.uint64(to)
    for i in range(np.uint64(n_elems)):
        y[end + i] = x[start + i]


@compiled(inline="always")
def clear_elements(y: np.ndarray, to: int, n_elems: int) -> None:
    """y[to + i] = 0."""
    start = np.uint64(to)
    for i in range(np.uint64(n_elems)):
        y[start + i] = 0


BLOCK = 5  # pixels of three bytes that a register of 16 bytes holds
_BYTES, _WORD, _LANE = ir.VectorType(ir.IntType(8), 16), ir.IntType(64), ir.IntType(32)
_REVERSED = [3 * (BLOCK - 1 - i // 3) + i % 3 for i in range(3 * BLOCK)] + [15]


@intrinsic
def _reverse_block(typing_context: Any, x: Any, at: Any, y: Any, to: Any) -> Definition:
    """y[to:to + 16] = the five pixels from x[at] on, the last one first, and a byte without meaning."""

    def build(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        def place(number: int) -> ir.Value:
            array = context.make_array(signature.args[number])(context, builder, args[number])
            return builder.bitcast(builder.gep(array.data, [args[number + 1]]), _BYTES.as_pointer())

        block = builder.load(place(0), align=1)
        order = ir.Constant(ir.VectorType(_LANE, 16), [ir.Constant(_LANE, i) for i in _REVERSED])
        builder.store(builder.shuffle_vector(block, ir.Constant(_BYTES, None), order), place(2), align=1)
        return context.get_dummy_value()

    return types.void(x, types.int64, y, types.int64), build


@compiled(inline="always")
def convert_pixels(pixels: np.ndarray, at: int, mean: np.ndarray, mean_at: int, scale: float, y: np.ndarray, to: int,
                   n_elems: int) -> None:
    """y[to + k] = (pixels[at + k] - mean[mean_at + k]) · scale; the difference is a float32."""
    start, of_mean, end = np.uint64(at), np.uint64(mean_at), np.uint64(to)
    for k in range(np.uint64(n_elems)):
        y[end + k] = stored((np.float32(pixels[start + k]) - mean[of_mean + k]) * scale, y[end + k])


MIRROR_PADDING = 16  # elements that ``mirror_row`` may write past the row


@compiled(borrows=True)
def mirror_row(x: np.ndarray, at: int, width: int, n_channels: int, y: np.ndarray) -> None:
    """Write a row of pixels to y, from right to left.

    Args:
        x: flat and contiguous.
        at: index in x of the row's first element.
        width, n_channels: pixels of the row, elements of a pixel.
        y: as x, and of its type; at least width · n_channels + MIRROR_PADDING elements.
    """
    n_done = width
    if n_channels == 3 and x.itemsize == 1 and width > BLOCK:
        n_done = width % BLOCK or BLOCK  # the blocks then end within x: the last one reads a byte more
        for w in range(n_done, width, BLOCK):
            _reverse_block(x, at + 3 * (width - w - BLOCK), y, 3 * w)
    for w in range(np.uint64(n_done)):
        near, far = w * np.uint64(n_channels), np.uint64(at) + (np.uint64(width - 1) - w) * np.uint64(n_channels)
        for c in range(np.uint64(n_channels)):
            y[near + c] = x[far + c]


SINGLE, DOUBLE, WORD = ir.FloatType(), ir.DoubleType(), ir.IntType(32)
LEAST, MOST = -104.0, 89.0  # beyond these the result is 0 or infinite
LN2_HIGH = 0.693359375  # exact in ten bits, so that its products with integers are exact, too
LN2_LOW = log(2) - LN2_HIGH
DEGREE = 7  # of the series: the remainder is below 6e-9 of the sum for arguments up to ln 2 / 2
BIAS, SHIFT = 127, 23  # of a float32's exponent
_declared: Callable[..., ir.Value] = cgutils.get_or_insert_function


@intrinsic
def exponential(typing_context: Any, number: Any) -> Definition:
    """e to the power of a number; loops over it vectorize.

    float32: relative error below 1e-7, denormal results too, by a series of degree 7. float64: the C library's.
    """

    def by_series(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        x, = args
        for bound, beyond in ((LEAST, "<"), (MOST, ">")):
            x = builder.select(builder.fcmp_ordered(beyond, x, SINGLE(bound)), SINGLE(bound), x)
        whole = _call(builder, "rint", builder.fmul(x, SINGLE(1 / log(2))))
        rest = _call(builder, "fma", whole, SINGLE(-LN2_HIGH), x)
        rest = _call(builder, "fma", whole, SINGLE(-LN2_LOW), rest)
        total = SINGLE(1 / factorial(DEGREE))
        for power in reversed(range(DEGREE)):
            total = _call(builder, "fma", total, rest, SINGLE(1 / factorial(power)))
        is_number = builder.fcmp_ordered("ord", whole, whole)
        exponent = builder.fptosi(builder.select(is_number, whole, SINGLE(0.0)), WORD)
        half = builder.ashr(exponent, WORD(1))  # two factors: a single power of two may be no float32
        return builder.fmul(builder.fmul(total, _power_of_two(builder, half)),
                            _power_of_two(builder, builder.sub(exponent, half)))

    def by_library(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.call(_declared(builder.module, ir.FunctionType(DOUBLE, [DOUBLE]), "llvm.exp.f64"), args)

    return number(number), by_series if number == types.float32 else by_library


def _power_of_two(builder: ir.IRBuilder, exponent: ir.Value) -> ir.Value:
    return builder.bitcast(builder.shl(builder.add(exponent, WORD(BIAS)), WORD(SHIFT)), SINGLE)


def _call(builder: ir.IRBuilder, name: str, *args: ir.Value) -> ir.Value:
    kind = ir.FunctionType(SINGLE, [SINGLE] * len(args))
    return builder.call(_declared(builder.module, kind, f"llvm.{name}.f32"), args)
