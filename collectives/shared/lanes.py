"""One SIMD vector's worth of a reduction: all sources are read before the target is written.

So the target may be one of the sources. A compiler that sees only loops over arrays has to check whether they overlap,
and falls back to scalar code where they do, which an in-place sum always does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from llvmlite import ir
from numba import types

from scaffe.collectives.shared.atomics import Definition, intrinsic

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
        typing_context: numba's.
        op: constant: 0 sum, 1 max, 2 min, 3 prod.
        n_lanes: constant: how many numbers.
        addresses: tuple of the sources' addresses.
        offset: bytes added to all addresses, the target's too.
        target: address; may be one of the sources.
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
