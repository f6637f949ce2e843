"""Between float32 and the 16 bits of fp16 and bf16, and sums of one with the other; compiled, without the GIL."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.shared.atomics import narrow, widen
from scaffe.jit import compiled
from scaffe.jit.bfloat16 import real, stored


@compiled
def pack(numbers: np.ndarray, words: np.ndarray, is_bfloat16: bool) -> None:
    """Rounds float32 numbers to 16 bits.

    Args:
        numbers: float32, shape (n,).
        words: uint16, shape (n,): the result's bits.
        is_bfloat16: bf16, else fp16.
    """
    if is_bfloat16:
        for i in range(numbers.size):
            words[i] = stored(numbers[i], words[i])
    else:
        for i in range(numbers.size):
            words[i] = narrow(numbers[i], words[i])


@compiled
def unpack(words: np.ndarray, numbers: np.ndarray, is_bfloat16: bool) -> None:
    """Converts 16-bit words to float32, exactly; arguments as in `pack`, `numbers` being the result."""
    if is_bfloat16:
        for i in range(numbers.size):
            numbers[i] = real(words[i])
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
def combine(numbers: np.ndarray, words: np.ndarray, op: int, is_bfloat16: bool) -> None:
    """Computes numbers = numbers op words, in float32; op as in shared.kernels, the others as in `pack`."""
    if is_bfloat16:
        for i in range(numbers.size):
            numbers[i] = _apply(op, numbers[i], real(words[i]))
    else:
        for i in range(numbers.size):
            numbers[i] = _apply(op, numbers[i], widen(words[i]))
