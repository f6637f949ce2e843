"""Between float32 and the 16 bits of fp16 and bf16, and sums of one with the other; compiled, without the GIL."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic  # type: ignore[attr-defined]

from scaffe.collectives.shared.atomics import narrow, widen
from scaffe.jit import compiled


@intrinsic
def _bits(typing_context, value):
    """The float32's bits as an uint32."""
    return types.uint32(types.float32), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.IntType(32))


@intrinsic
def _number(typing_context, value):
    """The float32 whose bits are in an uint32."""
    return types.float32(types.uint32), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.FloatType())


@compiled(inline="always")
def _to_brain(value):
    """To nearest, ties to even; a NaN stays one."""
    bits = _bits(value)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.uint16(rounded) if value == value else np.uint16(0x7FC0)


@compiled(inline="always")
def _from_brain(word):
    return _number(np.uint32(word) << np.uint32(16))


@compiled
def pack(numbers, words, is_brain):
    """words = numbers, rounded to bf16 or fp16. numbers: float32; words: uint16."""
    if is_brain:
        for i in range(numbers.size):
            words[i] = _to_brain(numbers[i])
    else:
        for i in range(numbers.size):
            words[i] = narrow(numbers[i], words[i])


@compiled
def unpack(words, numbers, is_brain):
    """numbers = words, exactly."""
    if is_brain:
        for i in range(numbers.size):
            numbers[i] = _from_brain(words[i])
    else:
        for i in range(numbers.size):
            numbers[i] = widen(words[i])


@compiled(inline="always")
def _apply(op, x, y):
    """x `op` y; op: 0 sum, 1 max, 2 min, 3 prod (the order of datatypes.OPS). LLVM takes the choice out of loops."""
    if op == 0:
        return x + y
    if op == 1:
        return x if x >= y else y
    if op == 2:
        return x if x <= y else y
    return x * y


@compiled
def combine(numbers, words, op, is_brain):
    """numbers = numbers op words, in float32; op as in shared.kernels."""
    if is_brain:
        for i in range(numbers.size):
            numbers[i] = _apply(op, numbers[i], _from_brain(words[i]))
    else:
        for i in range(numbers.size):
            numbers[i] = _apply(op, numbers[i], widen(words[i]))
