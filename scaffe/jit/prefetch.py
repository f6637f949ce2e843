"""Asking for memory before it is read: processors fetch a stream ahead by themselves, but not far enough for two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from scaffe.jit.brain import Definition, intrinsic

FLAG, BYTE = ir.IntType(32), ir.IntType(8).as_pointer()
NEAR, NEXT = 3, 2  # what is fetched goes into the first cache, or the second
_declared: Callable[..., ir.Value] = cgutils.get_or_insert_function


@intrinsic
def fetch(typing_context: Any, x: Any, at: Any) -> Definition:
    """Have the line of the cache fetched that has element ``at`` of a contiguous array, counted over all its axes."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        append_fetch(builder, builder.gep(context.make_array(x)(context, builder, args[0]).data, [args[1]]), NEAR)
        return context.get_dummy_value()

    return types.void(x, types.int64), generate


def append_fetch(builder: ir.IRBuilder, pointer: ir.Value, cache: int) -> None:
    """Append what starts to bring a line into a cache; an address outside of memory does nothing."""
    kind = ir.FunctionType(ir.VoidType(), [BYTE, FLAG, FLAG, FLAG])
    to_read, data = FLAG(0), FLAG(1)
    builder.call(_declared(builder.module, kind, "llvm.prefetch.p0"),
                 [builder.bitcast(pointer, BYTE), to_read, FLAG(cache), data])
