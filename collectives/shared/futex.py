"""Waiting for a shared word without occupying the core: ranks may well outnumber cores."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.shared.atomics import FUTEX_CALL, libc_sched_yield, libc_syscall, load_word
from scaffe.jit import compiled

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
        address: of the word.
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
