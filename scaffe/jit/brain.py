"""Elements of arrays as compiled loops read and write them: numbers, or bfloat16's 16 bits, of which NumPy knows nothing.

A loop that says ``real(x[i])`` and ``y[i] = stored(value, y[i])`` runs on float32 and float64 arrays as it would without
them, and on arrays of ``words`` it computes in float32 and rounds each result once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

Definition = tuple[Any, Callable[[Any, ir.IRBuilder, Any, Sequence[ir.Value]], ir.Value]]
WORD, SINGLE = ir.IntType(32), ir.FloatType()
QUIET_NAN = 0x7FC0
intrinsic: Any = _intrinsic


def words(array: Any) -> Any:
    """The array for a compiled loop: a bfloat16 one as its words, uint16, of the same memory; any other as it is."""
    return array.view(np.uint16) if array.dtype.kind == "V" else array


def wide(dtype: Any) -> np.dtype:
    """The type to compute in: float32 for half types, else ``dtype``."""
    return np.promote_types(dtype, np.float32)


@intrinsic
def real(typing_context: Any, element: Any) -> Definition:
    """The number that an element stands for: itself, or the float32 of a bfloat16's word."""

    def itself(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return args[0]

    def widen(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.bitcast(builder.shl(builder.zext(args[0], WORD), WORD(16)), SINGLE)

    return (types.float32(element), widen) if element == types.uint16 else (element(element), itself)


@intrinsic
def stored(typing_context: Any, number: Any, like: Any) -> Definition:
    """The number as an element of the type of ``like``; a word is rounded to nearest, ties to even, and keeps a NaN."""

    def converted(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return context.cast(builder, args[0], number, like)

    def narrow(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        value = context.cast(builder, args[0], number, types.float32)
        bits = builder.bitcast(value, WORD)
        is_odd = builder.and_(builder.lshr(bits, WORD(16)), WORD(1))
        rounded = builder.lshr(builder.add(bits, builder.add(is_odd, WORD(0x7FFF))), WORD(16))
        is_nan = builder.fcmp_unordered("uno", value, value)
        return builder.trunc(builder.select(is_nan, WORD(QUIET_NAN), rounded), ir.IntType(16))

    return like(number, like), narrow if like == types.uint16 else converted
