"""Register tiles of matrix products (the inner kernel of a GEMM), and prefetching of what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import Definition, intrinsic
from scaffe.jit.simd import LANES

FLAG, BYTE = ir.IntType(32), ir.IntType(8).as_pointer()
CACHE_LINE = 64  # bytes
NEAR, NEXT = 3, 2  # locality: prefetch into the first-level cache, or the second-level one
_prefetch: Callable[..., ir.Value] = cgutils.get_or_insert_function


@intrinsic
def prefetch(typing_context: Any, x: Any, at: Any) -> Definition:
    """Prefetch the cache line with element ``at`` of a contiguous array, an index over all its axes.

    Processors prefetch a single stream by themselves, but two streams not far enough ahead.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        append_prefetch(builder, builder.gep(context.make_array(x)(context, builder, args[0]).data, [args[1]]), NEAR)
        return context.get_dummy_value()

    return types.void(x, types.int64), generate


@compiled(inline="always")
def prefetch_lines(x: Any, at: int, n: int) -> None:
    """Prefetch the cache lines of n elements of a contiguous array from index ``at`` on, or of its last n elements."""
    start = min(at, x.size - n)
    for i in range(0, n, CACHE_LINE // x.itemsize):
        prefetch(x, start + i)


def append_prefetch(builder: ir.IRBuilder, pointer: ir.Value, cache: int) -> None:
    """Append a prefetch instruction; for an address outside of memory it does nothing."""
    kind = ir.FunctionType(ir.VoidType(), [BYTE, FLAG, FLAG, FLAG])
    to_read, data = FLAG(0), FLAG(1)
    builder.call(_prefetch(builder.module, kind, "llvm.prefetch.p0"),
                 [builder.bitcast(pointer, BYTE), to_read, FLAG(cache), data])


VECTORS = 2  # columns of most tiles: eight rows by two vectors hide the latency of two FMA units
COLUMNS = VECTORS * LANES
"""Columns of a panel of packed weights."""
_on_stack: Callable[..., ir.Value] = cgutils.alloca_once
_tuple: Callable[..., Any] = types.UniTuple
_declared: Callable[..., ir.Value] = cgutils.get_or_insert_function
N_PLACES, N_RUNS = 8, 3
INDEX, NUMBER = ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(NUMBER, LANES)


def register_tile(n_rows: int, n_vectors: int = VECTORS, has_pitch: bool = False, has_runs: bool = False,
         has_x_pitch: bool = False) -> Callable[..., None]:
    """Make a function for compiled code that multiplies ``n_rows`` rows by a panel of ``COLUMNS`` columns.

    Args:
        n_rows: rows of the tile.
        n_vectors: columns of the tile, in vectors of ``LANES``.
        has_pitch: ``places`` continues with ``pitch``, the distance between the panel's rows in place of ``COLUMNS``.
        has_x_pitch: ``places`` continues with ``x_pitch``, the distance between a row's numbers in x in place of 1.
        has_runs: ``places`` continues with ``n_runs, x_run, w_run``: the sum is over ``n_runs`` runs of k products;
            each starts ``x_run`` elements of x and ``w_run`` of w after the one before.

    Returns:
        (x, w, bias, added, adds, slope, y, places) → None, on flat contiguous arrays of float32, with
        places = (at, step, k, panel, ahead, column, to, stride), int64. For row i and column c of the panel,
        y[to + c + i stride] = relu(bias[column + c] + sum over j < k of x[at + i step + j] w[panel + j COLUMNS + c]
        + (``added`` at y's index, if ``adds``)), where relu multiplies what is not above 0 by ``slope``. ``added``
        may be y. For each j, the line of w at ``ahead + j COLUMNS`` is prefetched. Indices are not checked.
    """

    n = N_PLACES + has_pitch + has_x_pitch + N_RUNS * has_runs

    def apply(typing_context: Any, x: Any, w: Any, bias: Any, added: Any, adds: Any, slope: Any, y: Any,
              places: Any) -> Definition:
        def build(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
            *values, numbers = [context.make_array(kind)(context, builder, arg).data if isinstance(kind, types.Array)
                                else arg for kind, arg in zip(signature.args, args, strict=True)]
            places = [builder.extract_value(numbers, i) for i in range(n)]
            pitch = places[N_PLACES] if has_pitch else INDEX(n_vectors * LANES)
            x_pitch = places[N_PLACES + has_pitch] if has_x_pitch else INDEX(1)
            runs = places[-N_RUNS:] if has_runs else []
            _Tile(builder, (n_rows, n_vectors), values, places[:N_PLACES], (pitch, x_pitch), runs).build()
            return context.get_dummy_value()

        return types.void(x, w, bias, added, types.boolean, types.float32, y,
                          _tuple(types.int64, n)), build

    result: Callable[..., None] = intrinsic(apply)
    return result


class _Tile:
    """Builds the code of one tile; ``values`` and ``places`` are the function's arguments, arrays as pointers."""

    def __init__(self, builder: ir.IRBuilder, shape: tuple[int, int], values: Sequence[ir.Value],
                 places: Sequence[ir.Value], pitches: tuple[ir.Value, ir.Value], runs: Sequence[ir.Value]) -> None:
        self._builder, (n_rows, self._n_vectors) = builder, shape
        self._x, self._w, self._bias, self._added, self._adds, self._slope, self._y = values
        (self._at, self._step, self._k, self._panel, self._ahead, self._column, self._to, self._stride) = places
        (self._pitch, self._x_pitch), self._runs = pitches, runs
        self._sums = [[_on_stack(builder, VECTOR) for _ in range(self._n_vectors)] for _ in range(n_rows)]

    def build(self) -> None:
        """Append the instructions."""
        builder = self._builder
        for vector in range(self._n_vectors):
            first = self._load(self._bias, builder.add(self._column, INDEX(vector * LANES)))
            for sums in self._sums:
                builder.store(first, sums[vector])
        for _, offset in self._places():
            self._prefetch_line(self._added, offset, NEAR)
        if self._runs:
            n_runs, x_run, w_run = self._runs
            with cgutils.for_range(builder, n_runs) as loop:
                self._add_run(builder.add(self._at, builder.mul(x_run, loop.index)),
                              builder.add(self._panel, builder.mul(w_run, loop.index)))
        else:
            self._add_run(self._at, self._panel)
        with builder.if_then(self._adds):
            for total, offset in self._places():
                builder.store(builder.fadd(builder.load(total), self._load(self._added, offset)), total)
        self._write()

    def _add_run(self, at: ir.Value, panel: ir.Value) -> None:
        with cgutils.for_range(self._builder, self._k) as loop:
            self._add_products(loop.index, at, panel)

    def _add_products(self, j: ir.Value, at: ir.Value, panel: ir.Value) -> None:
        builder = self._builder
        offset = builder.mul(j, self._pitch)
        start = builder.add(panel, offset)
        weights = [self._load(self._w, builder.add(start, INDEX(v * LANES))) for v in range(self._n_vectors)]
        self._prefetch_line(self._w, builder.add(self._ahead, offset), NEXT)
        multiply_add = _declared(
            builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fma.v{LANES}f32")
        for i, sums in enumerate(self._sums):
            place = builder.add(builder.add(at, builder.mul(self._step, INDEX(i))), builder.mul(j, self._x_pitch))
            number = self._repeated(builder.load(builder.gep(self._x, [place])))
            for total, w in zip(sums, weights, strict=True):
                builder.store(builder.call(multiply_add, [number, w, builder.load(total)]), total)

    def _write(self) -> None:
        builder, slope, zero = self._builder, self._repeated(self._slope), VECTOR([NUMBER(0.0)] * LANES)
        for total, offset in self._places():
            value = builder.load(total)
            result = builder.select(builder.fcmp_ordered(">", value, zero), value, builder.fmul(value, slope))
            builder.store(result, self._vector(self._y, offset), align=4)

    def _places(self) -> Iterator[tuple[ir.Value, ir.Value]]:
        """Each vector of sums, and its offset in y."""
        for i, sums in enumerate(self._sums):
            row = self._builder.add(self._to, self._builder.mul(self._stride, INDEX(i)))
            for vector, total in enumerate(sums):
                yield total, self._builder.add(row, INDEX(vector * LANES))

    def _load(self, array: ir.Value, offset: ir.Value) -> ir.Value:
        return self._builder.load(self._vector(array, offset), align=4)

    def _vector(self, array: ir.Value, offset: ir.Value) -> ir.Value:
        return self._builder.bitcast(self._builder.gep(array, [offset]), VECTOR.as_pointer())

    def _repeated(self, number: ir.Value) -> ir.Value:
        lane, unset = ir.IntType(32), ir.Constant(VECTOR, ir.Undefined)
        one = self._builder.insert_element(unset, number, lane(0))
        return self._builder.shuffle_vector(one, unset, ir.VectorType(lane, LANES)([0] * LANES))

    def _prefetch_line(self, array: ir.Value, offset: ir.Value, cache: int) -> None:
        append_prefetch(self._builder, self._builder.gep(array, [offset]), cache)
