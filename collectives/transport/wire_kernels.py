"""Between float32 and the 16 bits of fp16 and bf16, and sums of one with the other; compiled, without the GIL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from scaffe.collectives.shared.atomics import Definition, intrinsic, narrow, widen
from scaffe.jit import compiled


@intrinsic
def _bits(typing_context: Any, value: Any) -> Definition:
    """The float32's bits as a uint32."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def _number(typing_context: Any, value: Any) -> Definition:
    """The float32 whose bits are in a uint32."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), generate


@compiled(inline="always")
def _to_brain(value: Any) -> Any:
    """To nearest, ties to even; a NaN stays one."""
    bits = _bits(value)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.uint16(rounded) if value == value else np.uint16(0x7FC0)


@compiled(inline="always")
def _from_brain(word: Any) -> Any:
    return _number(np.uint32(word) << np.uint32(16))


@compiled
def pack(numbers: np.ndarray, words: np.ndarray, is_brain: bool) -> None:
    """Rounds float32 numbers to 16 bits.

    Args:
        numbers: float32, shape (n,).
        words: uint16, shape (n,): the result's bits.
        is_brain: bf16, else fp16.
    """
    if is_brain:
        for i in range(numbers.size):
            words[i] = _to_brain(numbers[i])
    else:
        for i in range(numbers.size):
            words[i] = narrow(numbers[i], words[i])


@compiled
def unpack(words: np.ndarray, numbers: np.ndarray, is_brain: bool) -> None:
    """Converts 16-bit words to float32, exactly; arguments as in `pack`, `numbers` being the result."""
    if is_brain:
        for i in range(numbers.size):
            numbers[i] = _from_brain(words[i])
    else:
        for i in range(numbers.size):
            numbers[i] = widen(words[i])


@compiled(inline="always")
def _apply(op: int, x: Any, y: Any) -> Any:
    """x `op` y; op: 0 sum, 1 max, 2 min, 3 prod (the order of datatypes.OPS). LLVM takes the choice out of loops."""
    if op == 0:
        return x + y
    if op == 1:
        return x if x >= y else y
    if op == 2:
        return x if x <= y else y
    return x * y


@compiled
def combine(numbers: np.ndarray, words: np.ndarray, op: int, is_brain: bool) -> None:
    """Computes numbers = numbers op words, in float32; op as in shared.kernels, the others as in `pack`."""
    if is_brain:
        for i in range(numbers.size):
            numbers[i] = _apply(op, numbers[i], _from_brain(words[i]))
    else:
        for i in range(numbers.size):
            numbers[i] = _apply(op, numbers[i], widen(words[i]))
