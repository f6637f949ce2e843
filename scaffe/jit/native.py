"""Memory that compiled code knows by its address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import carray, types

from scaffe.jit import compiled
from scaffe.jit.brain import Definition, intrinsic


@intrinsic
def _pointer(typing_context: Any, place: Any) -> Definition:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@compiled(inline="always")
def array_at(place: int, n_elems: int, dtype: Any) -> Any:
    """The flat array of so many elements at an address."""
    return carray(_pointer(place), n_elems, dtype)
