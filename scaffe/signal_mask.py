"""Calls of native code during which no signal handler may run on the calling thread's stack.

oneDNN's generated matrix products (``jit_avx512_common_gemm_f32`` and its AVX sister) keep a pointer into their
working memory, which lies on the heap, in the stack pointer's register while they compute. A signal handler's frame
(3 to 12 KiB with the vector registers) is then written over the heap below it: a run that got one signal, such as
SLURM's SIGUSR1, could die with "corrupted size vs. prev_size", or go on with wrong numbers.

So signals are blocked around each such call, on the calling thread. They wait for its end, some milliseconds at most,
or another thread handles them. The mask holds for every thread that computes and every handler (an alternate stack
would need SA_ONSTACK of all of a C library's handlers), and for the threads that the call makes (OpenMP's), which
inherit it for life. One thread to wait for all signals would change more: a script's sleep would no longer end early
(EINTR), and child processes would inherit the mask and ignore SIGTERM.

The three steps are one compiled function, since a Python handler runs between byte codes: none ever runs blocked. What
a kernel raises by itself (SIGSEGV, SIGFPE, ...) is not blocked. Threads that another library made in the same OpenMP
pool (``libgomp.so.1``) from the same Python thread are out of reach; only a storm of signals finds them.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from scaffe.jit import compiled
from scaffe.jit.bfloat16 import array_at, intrinsic

MASK_BYTES = 128  # of a sigset_t; glibc's is the longest
NOT_ZERO = -1  # a call's own number, see ``call_in_a_row``
OWN_DOING = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGABRT")  # the thread's own


def caller(function: Any) -> Callable[..., int]:
    """What calls a ctypes library's C function of four integers or addresses that returns an int, with signals blocked
    while it runs: on the calling thread, without the interpreter's lock.
    """
    return partial(_call, ASYNCHRONOUS, ctypes.cast(function, ctypes.c_void_p).value)


_libc, _MASK = ctypes.CDLL(None), ctypes.create_string_buffer(MASK_BYTES)
_libc.sigfillset(_MASK)
for _name in OWN_DOING:
    _libc.sigdelset(_MASK, int(getattr(signal, _name)))
ASYNCHRONOUS: int = ctypes.addressof(_MASK)
"""Where the set of all signals that others send lies, for ``call_blocked``."""


@intrinsic
def call_blocked(typing: Any, mask: Any, function: Any, first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """In compiled code: block the signals of the set at an address, call a C function of four integers, unblock."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer, status = ir.IntType(64), ir.IntType(32)
        set_mask = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(status, [status, integer, integer]), "pthread_sigmask")
        target = ir.FunctionType(status, [integer] * 4).as_pointer()
        room = cgutils.alloca_once(builder, ir.ArrayType(integer, MASK_BYTES // 8))  # type: ignore[no-untyped-call]
        before = builder.ptrtoint(room, integer)
        builder.call(set_mask, [status(int(signal.SIG_BLOCK)), arguments[0], before])
        result = builder.call(builder.inttoptr(arguments[1], target), arguments[2:])
        builder.call(set_mask, [status(int(signal.SIG_SETMASK)), before, integer(0)])
        return result

    return types.int32(*[types.int64] * 6), generate


@compiled
def _call(mask: int, function: int, first: int, second: int, third: int, fourth: int) -> int:
    status: int = call_blocked(mask, function, first, second, third, fourth)
    return status


def call_in_a_row(table: np.ndarray) -> tuple[int, int]:
    """Call C functions one after another, each as ``caller`` does, until one fails.

    Args:
        table: int64; of each call the function's address, four arguments, the address of an int64 that is set to 0
            before (0: none), whether what it returns must be 0, and the address of an int64 that is 0 after a call
            that did not fail (0: none).

    Returns:
        how many calls did not fail, and what the next returned, or NOT_ZERO; 0 if there is none.
    """
    n_done, status = _call_in_a_row(ASYNCHRONOUS, table)
    return n_done, status


@compiled
def _call_in_a_row(mask: int, table: np.ndarray) -> tuple[int, int]:
    for i in range(len(table)):
        row = table[i]
        if row[5]:
            array_at(row[5], 1, np.int64)[0] = 0
        status: int = call_blocked(mask, row[0], row[1], row[2], row[3], row[4])
        if row[6] and status:
            return i, status
        if row[7] and array_at(row[7], 1, np.int64)[0]:
            array_at(row[7], 1, np.int64)[0] = 0
            return i, NOT_ZERO
    return len(table), 0
