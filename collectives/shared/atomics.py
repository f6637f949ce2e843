"""Atomic words, half-precision numbers and raw memory for compiled kernels (numba has none of these of its own).

All take plain integer addresses. Words are unsigned 32-bit, 4-byte aligned, shared between processes.
"""

import platform

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

FUTEX_CALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1)
WORD = ir.IntType(32)

libc_syscall = types.ExternalFunction(
    "syscall", types.int64(types.int64, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64)
)
libc_memcpy = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
libc_sched_yield = types.ExternalFunction("sched_yield", types.int32())


def _word_pointer(builder, address):
    return builder.inttoptr(address, WORD.as_pointer())


@intrinsic
def load_word(typing_context, address):
    """The word at `address`; what its writer wrote before `store_word` is visible afterwards (acquire)."""

    def generate(context, builder, signature, args):
        return builder.load_atomic(_word_pointer(builder, args[0]), ordering="acquire", align=4)

    return types.uint32(types.int64), generate


@intrinsic
def store_word(typing_context, address, value):
    """Write a word, after all that this thread wrote before (release)."""

    def generate(context, builder, signature, args):
        builder.store_atomic(args[1], _word_pointer(builder, args[0]), ordering="seq_cst", align=4)
        return context.get_dummy_value()

    return types.none(types.int64, types.uint32), generate


@intrinsic
def add_word(typing_context, address, value):
    """Add to a word; gives its value before."""

    def generate(context, builder, signature, args):
        return builder.atomic_rmw("add", _word_pointer(builder, args[0]), args[1], "seq_cst")

    return types.uint32(types.int64, types.uint32), generate


@intrinsic
def as_pointer(typing_context, address, like):
    """`address` as a pointer to elements of array `like`'s dtype, for numba.carray."""
    element = like.dtype

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(element).as_pointer())

    return types.CPointer(element)(types.int64, like), generate


@intrinsic
def widen(typing_context, value):
    """A float32 of the half-precision number whose bits are in an uint16; any other number as it is."""
    if value != types.uint16:
        return value(value), lambda context, builder, signature, args: args[0]

    def generate(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def narrow(typing_context, value, like):
    """The opposite of `widen`, for a result that goes where `like` came from."""
    if like != types.uint16:
        return like(value, like), lambda context, builder, sig, args: context.cast(builder, args[0], value, like)

    def generate(context, builder, signature, args):
        number = context.cast(builder, args[0], value, types.float32)
        return builder.bitcast(builder.fptrunc(number, ir.HalfType()), ir.IntType(16))

    return types.uint16(value, like), generate
