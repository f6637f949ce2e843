"""How compiled loops read and write elements: bfloat16 as its 16 bits (uint16), other types as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic as _intrinsic

from scaffe.jit import compiled

Definition = tuple[Any, Callable[[Any, ir.IRBuilder, Any, Sequence[ir.Value]], ir.Value]]
Parameters = ParamSpec("Parameters")
WORD, SINGLE = ir.IntType(32), ir.FloatType()
QUIET_NAN = 0x7FC0


def intrinsic(define: Callable[Concatenate[Any, Parameters], Definition]) -> Callable[Parameters, Any]:
    """`numba.extending.intrinsic`, with the signature that mypy sees."""
    made: Any = _intrinsic(define)
    result: Callable[Parameters, Any] = made
    return result


@intrinsic
def real(typing_context: Any, element: Any) -> Definition:
    """The number that an element stands for: a uint16 is the bits of a bfloat16, and becomes a float32."""

    def itself(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return args[0]

    def widen(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.bitcast(builder.shl(builder.zext(args[0], WORD), WORD(16)), SINGLE)

    return (types.float32(element), widen) if element == types.uint16 else (element(element), itself)


@intrinsic
def stored(typing_context: Any, number: Any, like: Any) -> Definition:
    """The number as an element of the type of ``like``. To bfloat16 (uint16) it is rounded to nearest, ties to even; a
    NaN stays one."""

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


@intrinsic
def _pointer(typing_context: Any, place: Any) -> Definition:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@compiled(inline="always")
def array_at(place: int, n_elems: int, dtype: Any) -> Any:
    """The flat array of ``n_elems`` elements of ``dtype`` at the address ``place``."""
    return carray(_pointer(place), n_elems, dtype)
