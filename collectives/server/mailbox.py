"""Mailboxes in shared memory: any thread of any process puts messages in, one takes them out or sleeps.

A ring of slots, each a cache line: a word that counts, then seven numbers. Slot i of lap n is free at count n·L + i,
full at one more (L slots; D. Vyukov's bounded queue). Counts are modulo 2**32. Who waits for a slot sleeps on its
word.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import carray

from scaffe.collectives.shared.atomics import add_word, as_pointer, store_word
from scaffe.collectives.shared.futex import wait_for, wake
from scaffe.jit import compiled

LINE_BYTES = 64
N_NUMBERS = 7
N_SPINS = 50  # looks at a word, giving way in between, before sleeping


def mailbox_bytes(n_slots: int) -> int:
    """Length of a mailbox's memory. ``n_slots``: a power of two from 2 on."""
    return LINE_BYTES * (1 + n_slots)


class Mailbox:
    """One mailbox, seen from one process.

    Args:
        memory: uint8 (mailbox_bytes(n_slots),), shared by all who use it, on a cache line.
        n_slots: a power of two from 2 on.
    """

    def __init__(self, memory: np.ndarray, n_slots: int) -> None:
        self._memory, self._n_slots = memory, n_slots
        self._base = np.int64(memory.ctypes.data)
        self._taken = 0

    def prepare(self) -> None:
        """Make it empty: once, by one process, before anybody uses it."""
        words = self._memory.view(np.uint32).reshape(-1, LINE_BYTES // 4)
        words[1:, 0] = np.arange(self._n_slots)

    def put(self, numbers: np.ndarray, waiting: Callable[[], None], seconds: float = 0.2) -> None:
        """Put a message in: int64 (7,). While no slot is free, ``waiting()`` is called now and then; it may raise."""
        ticket, timespec = _ticket(self._base), _timespec(seconds)
        while not _put(self._base, self._n_slots, ticket, numbers, N_SPINS, timespec):
            waiting()

    def take(self, numbers: np.ndarray, seconds: float) -> bool:
        """Take the next message out into int64 (7,). False where none came in time. One thread alone may call it."""
        if not _take(self._base, self._n_slots, np.uint32(self._taken), numbers, N_SPINS, _timespec(seconds)):
            return False
        self._taken = (self._taken + 1) & 0xFFFFFFFF
        return True


def _timespec(seconds: float) -> np.ndarray:
    return np.array([int(seconds), int(seconds % 1 * 1e9)], np.int64)


@compiled
def _numbers(slot: int) -> np.ndarray:
    return carray(as_pointer(slot + 8, np.empty(0, np.int64)), N_NUMBERS)


@compiled
def _ticket(base: int) -> int:
    ticket: int = add_word(base, 1)
    return ticket


@compiled
def _put(base: int, n_slots: int, ticket: int, numbers: np.ndarray, n_spins: int, timespec: np.ndarray) -> bool:
    slot = base + LINE_BYTES * (1 + (ticket & (n_slots - 1)))
    if not wait_for(slot, ticket, n_spins, timespec):
        return False
    _numbers(slot)[:] = numbers
    store_word(slot, ticket + 1)
    wake(slot)
    return True


@compiled
def _take(base: int, n_slots: int, count: int, numbers: np.ndarray, n_spins: int, timespec: np.ndarray) -> bool:
    slot = base + LINE_BYTES * (1 + (count & (n_slots - 1)))
    if not wait_for(slot, count + 1, n_spins, timespec):
        return False
    numbers[:] = _numbers(slot)
    store_word(slot, count + n_slots)
    wake(slot)
    return True
