"""One SIMD vector's worth of a reduction: all sources are read before the target is written.

So the target may be one of the sources. A compiler that sees only loops over arrays has to check whether they overlap,
and falls back to scalar code where they do, which an in-place sum always does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from scaffe.collectives.shared.atomics import Definition, intrinsic, libc_memcpy
from scaffe.jit import compiled

LANES = 16  # a cache line of float32
LINE_BYTES = 64
AHEAD_BYTES = 1024
"""How far ahead of a sum its sources are asked for, into the second-level cache: with five sources and more the
processor's own prefetching falls behind (5 of 64 MiB: 6.9 and 5.9 ms; into the first-level cache nothing is won)."""
Operation = Callable[[ir.IRBuilder, Any, ir.Value, ir.Value], ir.Value]
"""Generates left op right, given the elements' numba type."""


@partial(intrinsic, prefer_literal=True)
def fold(typing_context: Any, op: Any, n_lanes: Any, addresses: Any, offset: Any, target: Any,
         like: Any) -> Definition:
    """Computes target = ((a op b) op c) ... on `n_lanes` numbers, and asks for those that will be next.

    Args:
        op: constant: 0 sum, 1 max, 2 min, 3 prod.
        n_lanes: constant: how many numbers.
        addresses: tuple of the sources' addresses.
        offset: bytes added to all addresses, the target's too.
        like: an array of the numbers' dtype; half-precision numbers are uint16, rounded after every operation.
    """
    operation, lanes, element = _OPS[op.literal_value], n_lanes.literal_value, like.dtype

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        vector = ir.VectorType(context.get_data_type(element), lanes)

        def pointer(address: ir.Value) -> ir.Value:
            return builder.inttoptr(builder.add(address, args[3]), vector.as_pointer())

        firsts = [builder.extract_value(args[2], i) for i in range(len(addresses))]
        for line in range(AHEAD_BYTES, AHEAD_BYTES + lanes * element.bitwidth // 8, LINE_BYTES) if lanes > 1 else ():
            for first in firsts:
                _prefetch(builder, builder.add(builder.add(first, args[3]), ir.Constant(ir.IntType(64), line)))
        values = [builder.load(pointer(first), align=element.bitwidth // 8) for first in firsts]
        result = reduce(lambda left, right: operation(builder, element, left, right), values)
        builder.store(result, pointer(args[4]), align=element.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(op, n_lanes, addresses, types.int64, types.int64, like), generate


def _prefetch(builder: ir.IRBuilder, address: ir.Value) -> None:
    """Asks for a line, to read it, in the second-level cache. An address where nothing is does no harm."""
    pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
    builder.call(prefetch, [builder.inttoptr(address, pointer), *(ir.Constant(flag, value) for value in (0, 2, 1))])


def _arithmetic(on_floats: str, on_integers: str) -> Operation:
    def operation(builder: ir.IRBuilder, element: Any, left: ir.Value, right: ir.Value) -> ir.Value:
        if element == types.uint16:
            wide = getattr(builder, on_floats)(_widened(builder, left), _widened(builder, right))
            return builder.bitcast(builder.fptrunc(wide, _of(left, ir.HalfType())), left.type)
        return getattr(builder, on_floats if isinstance(element, types.Float) else on_integers)(left, right)

    return operation


def _choice(comparison: str) -> Operation:
    def operation(builder: ir.IRBuilder, element: Any, left: ir.Value, right: ir.Value) -> ir.Value:
        if element == types.uint16:
            keeps = builder.fcmp_ordered(comparison, _widened(builder, left), _widened(builder, right))
        elif isinstance(element, types.Float):
            keeps = builder.fcmp_ordered(comparison, left, right)
        else:
            keeps = builder.icmp_signed(comparison, left, right)
        return builder.select(keeps, left, right)

    return operation


def _widened(builder: ir.IRBuilder, halves: ir.Value) -> ir.Value:
    return builder.fpext(builder.bitcast(halves, _of(halves, ir.HalfType())), _of(halves, ir.FloatType()))


def _of(vector: ir.Value, element: ir.Type) -> ir.VectorType:
    return ir.VectorType(element, vector.type.count)


_OPS = (_arithmetic("fadd", "add"), _choice(">="), _choice("<="), _arithmetic("fmul", "mul"))


BLOCK_BYTES = 16384  # of the accumulator: in the first-level cache together with one input
MOST_ADDED = 4  # sources that one pass over a block adds to what is there: five streams at once


@compiled(inline="always")
def _fold_all(op: int, addresses: tuple[int, ...], target: int, n_elems: int, like: np.ndarray) -> None:
    item = like.itemsize
    whole = n_elems // LANES * LANES
    for offset in range(0, whole * item, LANES * item):
        fold(op, LANES, addresses, offset, target, like)
    for offset in range(whole * item, n_elems * item, item):
        fold(op, 1, addresses, offset, target, like)


@compiled
def combine(addresses: tuple[int, ...], target: int, n_elems: int, like: np.ndarray, op: int) -> None:
    """Computes target = ((a op b) op c) op d, elementwise; reading four or five streams at once reaches memory speed.

    Args:
        addresses: of two to five buffers.
        like: an array of their dtype (float16 as uint16, see `bits`).
        op: 0 sum, 1 max, 2 min, 3 prod.
    """
    if op == 0:
        _fold_all(0, addresses, target, n_elems, like)
    elif op == 1:
        _fold_all(1, addresses, target, n_elems, like)
    elif op == 2:
        _fold_all(2, addresses, target, n_elems, like)
    else:
        _fold_all(3, addresses, target, n_elems, like)


@compiled
def combine2(a: np.ndarray, b: np.ndarray, out: np.ndarray, op: int) -> None:
    """Computes out = a op b, elementwise; `out` may be one of them. Arrays of one dtype; op as in `combine`."""
    combine((np.int64(a.ctypes.data), np.int64(b.ctypes.data)), np.int64(out.ctypes.data), out.size, out, op)


@compiled
def combine_ranks(addresses: np.ndarray, sources: np.ndarray, targets: np.ndarray, start: int, end: int,
                  block: np.ndarray, op: int) -> None:
    """Writes the reduction of the sources' elements [start, end), in the order given, to all targets.

    A single target is written directly, several are copied from a block that stays in cache.

    Args:
        addresses: int64, shape (ranks,): where each rank's buffer begins.
        sources: int64, ranks that are read.
        targets: int64, ranks that are written.
        block: scratch of the buffers' dtype; its length is the step.
        op: as in `combine`.
    """
    item, scratch = block.itemsize, np.int64(block.ctypes.data)
    for at in range(start, end, block.size):
        n = min(block.size, end - at)
        offset = at * item
        last = addresses[targets[0]] + offset if targets.size == 1 else scratch
        left, done = addresses[sources[0]] + offset, 1
        for passes in range(-(-(sources.size - 1) // MOST_ADDED), 0, -1):
            count = -(-(sources.size - done) // passes)  # as many in each: a stream alone is slow
            target = last if passes == 1 else scratch
            _add(left, addresses, sources[done : done + count], offset, target, n, block, op)
            left, done = scratch, done + count
        if targets.size > 1:
            for rank in targets:
                libc_memcpy(addresses[rank] + offset, scratch, n * item)


@compiled
def _add(left: int, addresses: np.ndarray, added: np.ndarray, offset: int, target: int, n_elems: int,
         block: np.ndarray, op: int) -> None:
    """Computes target = left op the one to four sources that are added, in their order."""
    n = added.size
    a, b = addresses[added[0]] + offset, addresses[added[min(1, n - 1)]] + offset
    c, d = addresses[added[min(2, n - 1)]] + offset, addresses[added[n - 1]] + offset
    if n == 1:
        combine((left, a), target, n_elems, block, op)
    elif n == 2:
        combine((left, a, b), target, n_elems, block, op)
    elif n == 3:
        combine((left, a, b, c), target, n_elems, block, op)
    else:
        combine((left, a, b, c, d), target, n_elems, block, op)


@compiled
def copy_range(addresses: np.ndarray, source: int, targets: np.ndarray, start_byte: int, end_byte: int) -> None:
    """Copies bytes [start_byte, end_byte) of rank `source`'s buffer to all `targets` (ranks); `addresses` as above."""
    for target in targets:
        libc_memcpy(addresses[target] + start_byte, addresses[source] + start_byte, end_byte - start_byte)


def block_for(dtype: np.dtype[Any]) -> np.ndarray:
    """Allocates the scratch block of `combine_ranks`. Returns BLOCK_BYTES of that dtype, float16 as uint16,
    uninitialised."""
    return bits(np.empty(BLOCK_BYTES // np.dtype(dtype).itemsize, dtype))


def bits(array: np.ndarray) -> np.ndarray:
    """Views an array as the kernels take it: float16 as uint16, any other dtype as it is."""
    return array.view(np.uint16) if array.dtype == np.float16 else array


@compiled
def gather_ranges(values: np.ndarray, ranges: np.ndarray, buffer: np.ndarray) -> None:
    """Copies ranges of elements.

    Args:
        values: source, flat.
        ranges: int64 (n_ranges, 3), rows of (offset in values, offset in buffer, n_elems).
        buffer: destination, flat.
    """
    for r in range(len(ranges)):
        source, target, n_elems = ranges[r]
        buffer[target : target + n_elems] = values[source : source + n_elems]


@compiled
def scatter_ranges(values: np.ndarray, ranges: np.ndarray, buffer: np.ndarray) -> None:
    """The inverse of ``gather_ranges``: copies the buffer's ranges into ``values``."""
    for r in range(len(ranges)):
        target, source, n_elems = ranges[r]
        values[target : target + n_elems] = buffer[source : source + n_elems]
