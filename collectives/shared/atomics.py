"""Atomic words, half-precision numbers and raw memory for compiled kernels (numba has none of these), and waiting for
a word."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import numba.extending
import numpy as np
from llvmlite import ir
from numba import types

from scaffe.jit import compiled

FUTEX_CALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1)
WORD = ir.IntType(32)
POINTER_TO: Any = types.CPointer
Parameters = ParamSpec("Parameters")
Definition = tuple[Any, Callable[[Any, ir.IRBuilder, Any, Sequence[ir.Value]], ir.Value]]
"""A numba signature, and what generates the code: (context, builder, signature, values) to the result."""


def intrinsic(define: Callable[Concatenate[Any, Parameters], Definition],
              **options: bool) -> Callable[Parameters, Any]:
    """Decorates like `numba.extending.intrinsic`, and lets mypy see what compiled code calls.

    Args:
        define: takes numba's typing context and the arguments' types.
        options: numba's, such as prefer_literal.

    Returns:
        What compiled functions call with the arguments' values.
    """
    made: Any = numba.extending.intrinsic(**options)(define) if options else numba.extending.intrinsic(define)
    result: Callable[Parameters, Any] = made
    return result


libc_syscall: Any = types.ExternalFunction(
    "syscall", types.int64(types.int64, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64)
)
libc_memcpy: Any = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
libc_sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())


def _word_pointer(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, WORD.as_pointer())


@intrinsic
def load_word(typing_context: Any, address: Any) -> Definition:
    """Reads the word at `address`, with acquire order: what its writer wrote before `store_word` is visible."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.load_atomic(_word_pointer(builder, args[0]), ordering="acquire", align=4)

    return types.uint32(types.int64), generate


@intrinsic
def store_word(typing_context: Any, address: Any, value: Any) -> Definition:
    """Writes a word at `address`, after all that this thread wrote before (sequentially consistent)."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        builder.store_atomic(args[1], _word_pointer(builder, args[0]), ordering="seq_cst", align=4)
        return context.get_dummy_value()

    return types.none(types.int64, types.uint32), generate


@intrinsic
def add_word(typing_context: Any, address: Any, value: Any) -> Definition:
    """Adds to the word at `address`; returns its value before."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.atomic_rmw("add", _word_pointer(builder, args[0]), args[1], "seq_cst")

    return types.uint32(types.int64, types.uint32), generate


@intrinsic
def as_pointer(typing_context: Any, address: Any, like: Any) -> Definition:
    """Casts `address` to a pointer to elements of array `like`'s dtype, for numba.carray."""
    element = like.dtype

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.inttoptr(args[0], context.get_value_type(element).as_pointer())

    return POINTER_TO(element)(types.int64, like), generate


@intrinsic
def widen(typing_context: Any, value: Any) -> Definition:
    """Converts the half-precision number whose bits are in a uint16 to float32; returns any other number as it is."""
    if value != types.uint16:
        return value(value), lambda context, builder, signature, args: args[0]

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def narrow(typing_context: Any, value: Any, like: Any) -> Definition:
    """Converts `value` back to the type of `like`: the inverse of `widen` for a uint16."""
    if like != types.uint16:
        return like(value, like), lambda context, builder, sig, args: context.cast(builder, args[0], value, like)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> ir.Value:
        number = context.cast(builder, args[0], value, types.float32)
        return builder.bitcast(builder.fptrunc(number, ir.HalfType()), ir.IntType(16))

    return types.uint16(value, like), generate


FUTEX_WAIT, FUTEX_WAKE, ALL_WAITERS = 0, 1, 0x7FFFFFFF


@compiled
def reached(address: int, epoch: Any) -> bool:
    """Whether the word at `address` is at or past `epoch`, counting modulo 2**32."""
    is_reached: bool = ((load_word(address) - epoch) & 0xFFFFFFFF) < 0x80000000
    return is_reached


@compiled
def wake(address: int) -> None:
    """Wakes every process that waits for the word at `address`."""
    libc_syscall(FUTEX_CALL, address, FUTEX_WAKE, ALL_WAITERS, 0, 0, 0)


@compiled
def wait_for(address: int, epoch: Any, n_polls: int, timespec: np.ndarray) -> bool:
    """Waits until a shared word has reached a value.

    Args:
        epoch: uint32, the value.
        n_polls: how often to poll, yielding the core in between, before sleeping in the kernel.
        timespec: int64, shape (2,): seconds and nanoseconds after which to give up.

    Returns:
        False when the time has passed first.
    """
    for _ in range(n_polls):
        if reached(address, epoch):
            return True
        libc_sched_yield()
    while True:
        seen = load_word(address)
        if ((seen - epoch) & 0xFFFFFFFF) < 0x80000000:
            return True
        libc_syscall(FUTEX_CALL, address, FUTEX_WAIT, seen, timespec.ctypes.data, 0, 0)
        if load_word(address) == seen:
            came: bool = reached(address, epoch)
            return came
