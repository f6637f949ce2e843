"""Sums of products of vectors, lane by lane, of a few rows and columns that stay in registers until they are whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from scaffe.jit.brain import Definition, intrinsic
from scaffe.jit.registers import LANES

_on_stack: Callable[..., ir.Value] = cgutils.alloca_once
_declared: Callable[..., ir.Value] = cgutils.get_or_insert_function
_tuple: Callable[..., Any] = types.UniTuple
N_PLACES = 10
INDEX = ir.IntType(64)
VECTOR = ir.VectorType(ir.FloatType(), LANES)


def lane_sums(n_rows: int, n_columns: int) -> Callable[..., None]:
    """A function for compiled code that adds up products of ``n_rows`` by ``n_columns`` vectors, lane by lane.

    Returns:
        (a, b, places, sums, to) → None, on flat contiguous arrays of float32, with places = (n_runs, n_steps, at_a,
        run_a, step_a, at_b, run_b, step_b, row_a, column_b), int64. To each vector sums[to + (i n_columns + j) LANES]
        it adds, over runs r and steps s, a[at_a + r run_a + s step_a + i row_a] times
        b[at_b + r run_b + s step_b + j column_b]. Indices are not checked.
    """

    def apply(typing_context: Any, a: Any, b: Any, places: Any, sums: Any, to: Any) -> Definition:
        def build(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
            first, second, target = (context.make_array(signature.args[i])(context, builder, args[i]).data
                                     for i in (0, 1, 3))
            numbers = [builder.extract_value(args[2], i) for i in range(N_PLACES)]
            _Sums(builder, (n_rows, n_columns), (first, second), numbers).build(target, args[4])
            return context.get_dummy_value()

        return types.void(a, b, _tuple(types.int64, N_PLACES), sums, types.int64), build

    result: Callable[..., None] = intrinsic(apply)
    return result


class _Sums:
    """The code of one such function."""

    def __init__(self, builder: ir.IRBuilder, shape: tuple[int, int], arrays: tuple[ir.Value, ir.Value],
                 places: Sequence[ir.Value]) -> None:
        self._builder, (self._n_rows, self._n_columns), (self._a, self._b) = builder, shape, arrays
        (self._n_runs, self._n_steps, self._at_a, self._run_a, self._step_a, self._at_b, self._run_b, self._step_b,
         self._row_a, self._column_b) = places

    def build(self, target: ir.Value, to: ir.Value) -> None:
        """Append the instructions."""
        builder, n_sums = self._builder, self._n_rows * self._n_columns
        places = [self._place(target, to, INDEX(LANES), i) for i in range(n_sums)]
        sums = [_on_stack(builder, VECTOR) for _ in places]
        for total, place in zip(sums, places, strict=True):
            builder.store(builder.load(place, align=4), total)
        with cgutils.for_range(builder, self._n_runs) as run:
            at_a, at_b = (builder.add(at, builder.mul(apart, run.index))
                          for at, apart in ((self._at_a, self._run_a), (self._at_b, self._run_b)))
            with cgutils.for_range(builder, self._n_steps) as step:
                self._add_products(sums, builder.add(at_a, builder.mul(self._step_a, step.index)),
                                   builder.add(at_b, builder.mul(self._step_b, step.index)))
        for total, place in zip(sums, places, strict=True):
            builder.store(builder.load(total), place, align=4)

    def _add_products(self, sums: Sequence[ir.Value], at_a: ir.Value, at_b: ir.Value) -> None:
        builder = self._builder
        multiply_add = _declared(builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fma.v{LANES}f32")
        columns = [builder.load(self._place(self._b, at_b, self._column_b, j), align=4) for j in range(self._n_columns)]
        for i in range(self._n_rows):
            row = builder.load(self._place(self._a, at_a, self._row_a, i), align=4)
            for total, column in zip(sums[i * self._n_columns:], columns, strict=False):
                builder.store(builder.call(multiply_add, [row, column, builder.load(total)]), total)

    def _place(self, array: ir.Value, start: ir.Value, apart: ir.Value, n: int) -> ir.Value:
        offset = self._builder.add(start, self._builder.mul(apart, INDEX(n)))
        return self._builder.bitcast(self._builder.gep(array, [offset]), VECTOR.as_pointer())
