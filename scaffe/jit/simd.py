"""SIMD code that is built with LLVM: formulas, multiply-adds and transposes of vectors that stay in registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import Definition, intrinsic

_features = get_host_cpu_features()
HAS_AVX512: Final = bool(_features.get("avx512f"))
"""32 registers of 16 float32, instead of 16 registers of 8."""
HAS_FMA: Final = bool(_features.get("avx2") and _features.get("fma"))
HAS_AMX: Final = bool(_features.get("amx-tile"))
LANES: Final = 16 if HAS_AVX512 else 8
"""float32 in the widest registers; narrower ones take as many as they need."""


INDEX = ir.IntType(64)
VECTOR = ir.VectorType(ir.FloatType(), LANES)
Places = tuple[ir.Value, ir.Value, ir.Value]
_each: Callable[..., Any] = cgutils.for_range_slice
_on_stack: Callable[..., ir.Value] = cgutils.alloca_once
_declared: Callable[..., ir.Value] = cgutils.get_or_insert_function
_tuple: Callable[..., Any] = types.UniTuple


class SimdVector:
    """A SIMD vector in code that is being built, with the operators of a number; ``builder`` appends instructions."""

    __array_ufunc__ = None  # NumPy's numbers leave their operators to these

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: SimdVector) -> SimdVector:
        return SimdVector(self.builder, self.builder.fadd(self.value, other.value))

    def __sub__(self, other: SimdVector) -> SimdVector:
        return SimdVector(self.builder, self.builder.fsub(self.value, other.value))

    def __rmul__(self, factor: float) -> SimdVector:
        kind = self.value.type
        constant = ir.Constant(kind, [ir.Constant(kind.element, float(factor))] * kind.count)
        return SimdVector(self.builder, self.builder.fmul(constant, self.value))

    def __neg__(self) -> SimdVector:
        return SimdVector(self.builder, self.builder.fneg(self.value))


def vectorized(formulas: Mapping[int, Callable[..., tuple[Any, ...]]]) -> Callable[..., None]:
    """Make a function for compiled code that applies one of several formulas to columns, LANES at a time.

    Args:
        formulas: by number; each takes numbers and returns some, by sums, differences, negation and products with
            constants.

    Returns:
        (which, x, at, step, n, y, to, stride) → None, on flat contiguous arrays of float32. In each column c < n,
        formula number ``which`` takes x[at + c + i step] for inputs i and writes y[to + c + j stride] for results j.
        All inputs are read before a result is written. Indices are not checked.
    """

    def apply(typing_context: Any, which: Any, x: Any, at: Any, step: Any, n: Any, y: Any, to: Any,
              stride: Any) -> Definition:
        def build(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
            source, target = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (1, 5))
            rest = builder.srem(args[4], INDEX(LANES))
            for number, formula in formulas.items():
                with builder.if_then(builder.icmp_signed("==", args[0], INDEX(number))):
                    for start, stop, n_lanes in ((INDEX(0), builder.sub(args[4], rest), LANES),
                                                 (builder.sub(args[4], rest), args[4], 1)):
                        with _each(builder, start, stop, INDEX(n_lanes)) as (column, _):
                            _apply(builder, formula, n_lanes, (source, builder.add(args[2], column), args[3]),
                                   (target, builder.add(args[6], column), args[7]))
            return context.get_dummy_value()

        return types.void(types.int64, x, *[types.int64] * 3, y, types.int64, types.int64), build

    result: Callable[..., None] = intrinsic(apply)
    return result


def _apply(builder: ir.IRBuilder, formula: Callable[..., tuple[Any, ...]], n_lanes: int, source: Places,
           target: Places) -> None:
    """Append a formula on ``n_lanes`` columns, from and to arrays, given with the first place and the step."""
    vector = ir.VectorType(ir.FloatType(), n_lanes)

    def place(array: ir.Value, first: ir.Value, step: ir.Value, index: int) -> ir.Value:
        offset = builder.add(first, builder.mul(step, INDEX(index)))
        return builder.bitcast(builder.gep(array, [offset]), vector.as_pointer())

    inputs = [SimdVector(builder, builder.load(place(*source, i), align=4))
              for i in range(formula.__code__.co_argcount)]
    for j, result in enumerate(formula(*inputs)):
        builder.store(result.value, place(*target, j), align=4)


N_PLACES = 10


def simd_multiply_add(n_rows: int, n_columns: int) -> Callable[..., None]:
    """Make a function for compiled code that sums products of ``n_rows`` by ``n_columns`` vectors, lane by lane.

    Returns:
        (a, b, places, sums, to) → None, on flat contiguous arrays of float32, with places = (n_runs, n_steps, at_a,
        run_a, step_a, at_b, run_b, step_b, row_a, column_b), int64. To each vector sums[to + (i n_columns + j) LANES]
        it adds, over runs r and steps s, the vector at a[at_a + r run_a + s step_a + i row_a] times the one at
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
    """Builds the code of one function of ``simd_multiply_add``."""

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


@compiled(inline="always")
def transpose(x: np.ndarray, at: int, step: int, shape: tuple[int, int], y: np.ndarray, to: int, stride: int) -> None:
    """Transpose a matrix of that shape in registers: y[to + j stride + i] = x[at + i step + j], for rows i and columns
    j. Arrays are flat, contiguous, of float32; indices are not checked."""
    n_rows, n_columns = shape
    whole_rows, whole_columns = n_rows - n_rows % LANES, n_columns - n_columns % LANES
    for i in range(0, whole_rows, LANES):
        for j in range(0, whole_columns, LANES):
            _transpose_block(x, at + i * step + j, step, y, to + j * stride + i, stride)
        for j in range(whole_columns, n_columns):
            for m in range(i, i + LANES):
                y[to + j * stride + m] = x[at + m * step + j]
    for i in range(whole_rows, n_rows):
        for j in range(n_columns):
            y[to + j * stride + i] = x[at + i * step + j]


@intrinsic
def _transpose_block(typing_context: Any, x: Any, at: Any, step: Any, y: Any, to: Any, stride: Any) -> Definition:
    """``transpose`` of LANES rows and columns. In step d = 1, 2, 4, ..., vectors d apart exchange the blocks of d lanes
    across the diagonal."""

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
    """Exchange lanes of two vectors: lanes of a whose index has the bit ``apart`` with lanes of b whose has not."""
    lanes = ir.VectorType(ir.IntType(32), LANES)
    first = [LANES + lane - apart if lane & apart else lane for lane in range(LANES)]
    second = [LANES + lane if lane & apart else lane + apart for lane in range(LANES)]
    return builder.shuffle_vector(a, b, lanes(first)), builder.shuffle_vector(a, b, lanes(second))
