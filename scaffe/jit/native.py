"""Compiled functions that native code calls, on its own threads too: where they are, and what they are given.

Such a function takes the address of a table of int64, from which it knows all else. It may raise nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import carray, types

from scaffe.jit import compiled
from scaffe.jit.brain import Definition, intrinsic

PLACE = ir.IntType(64)


@intrinsic
def address_of(typing_context: Any, function: Any) -> Definition:
    """The address of a C function, (int64) → nothing, that calls a compiled one."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        dispatcher = function.dispatcher
        dispatcher.compile((types.int64,))
        made = dispatcher.overloads[types.int64,]
        context.active_code_library.add_linking_library(made.library)
        kind = ir.FunctionType(ir.VoidType(), [PLACE])
        entry = ir.Function(builder.module, kind, f"{made.fndesc.mangled_name}.entry")
        entry.linkage = "internal"
        inside = ir.IRBuilder(entry.append_basic_block())
        context.call_internal_no_propagate(inside, made.fndesc, made.signature, entry.args)
        inside.ret_void()
        return builder.ptrtoint(entry, PLACE)

    return types.int64(function), generate


@intrinsic
def taken(typing_context: Any, place: Any) -> Definition:
    """The int64 at an address, which is one more from now on: no two threads get the same."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.atomic_rmw("add", builder.inttoptr(args[0], PLACE.as_pointer()), PLACE(1), "monotonic")

    return types.int64(types.int64), generate


@intrinsic
def _pointer(typing_context: Any, place: Any) -> Definition:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@compiled(inline="always")
def array_at(place: int, n_elems: int, dtype: Any) -> Any:
    """The flat array of so many elements at an address."""
    return carray(_pointer(place), n_elems, dtype)
