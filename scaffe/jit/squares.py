"""Matrices turned by squares that stay in registers: LLVM turns them one number at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from scaffe.jit import compiled
from scaffe.jit.brain import Definition, intrinsic
from scaffe.jit.registers import LANES

VECTOR = ir.VectorType(ir.FloatType(), LANES)


@compiled(inline="always")
def turn(x: np.ndarray, at: int, step: int, shape: tuple[int, int], y: np.ndarray, to: int, stride: int) -> None:
    """y[to + j stride + i] = x[at + i step + j], for rows i and columns j of x's matrix.

    Args:
        x, y: flat, contiguous, of float32. Indices are not checked.
        at, step: where the matrix begins, and elements from a row to the next.
        shape: rows and columns.
        to, stride: the same of the turned one.
    """
    n_rows, n_columns = shape
    whole_rows, whole_columns = n_rows - n_rows % LANES, n_columns - n_columns % LANES
    for i in range(0, whole_rows, LANES):
        for j in range(0, whole_columns, LANES):
            _turn_square(x, at + i * step + j, step, y, to + j * stride + i, stride)
        for j in range(whole_columns, n_columns):
            for m in range(i, i + LANES):
                y[to + j * stride + m] = x[at + m * step + j]
    for i in range(whole_rows, n_rows):
        for j in range(n_columns):
            y[to + j * stride + i] = x[at + i * step + j]


@intrinsic
def _turn_square(typing_context: Any, x: Any, at: Any, step: Any, y: Any, to: Any, stride: Any) -> Definition:
    """``turn`` of LANES rows and columns: in step d, vectors d apart exchange those blocks of d lanes that lie across
    the diagonal."""

    def build(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        source, target = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 3))

        def place(array: ir.Value, start: ir.Value, apart: ir.Value, row: int) -> ir.Value:
            offset = builder.add(start, builder.mul(apart, ir.IntType(64)(row)))
            return builder.bitcast(builder.gep(array, [offset]), VECTOR.as_pointer())

        rows = [builder.load(place(source, args[1], args[2], row), align=4) for row in range(LANES)]
        for apart in (1 << n for n in range(LANES.bit_length() - 1)):
            for i in range(LANES):
                if not i & apart:
                    rows[i], rows[i + apart] = _exchanged(builder, rows[i], rows[i + apart], apart)
        for row, value in enumerate(rows):
            builder.store(value, place(target, args[4], args[5], row), align=4)
        return context.get_dummy_value()

    return types.void(x, types.int64, types.int64, y, types.int64, types.int64), build


def _exchanged(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, apart: int) -> tuple[ir.Value, ir.Value]:
    """Where a lane's number has the bit ``apart``, a gets b's lane before it; else b gets a's lane behind it."""
    lanes = ir.VectorType(ir.IntType(32), LANES)
    first = [LANES + lane - apart if lane & apart else lane for lane in range(LANES)]
    second = [LANES + lane if lane & apart else lane + apart for lane in range(LANES)]
    return builder.shuffle_vector(a, b, lanes(first)), builder.shuffle_vector(a, b, lanes(second))
