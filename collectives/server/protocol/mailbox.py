"""Mailboxes in shared memory, many producers and one consumer: any thread of any process puts, one thread takes.

A mailbox is a ring of L slots of one cache line each: a sequence counter, then the message's seven numbers. In lap n
slot i is free while its counter is n·L + i and full when it is one more (D. Vyukov's bounded queue). Counters wrap
modulo 2**32. A thread that waits for a slot sleeps on its counter (futex).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import carray

from scaffe.collectives.shared.atomics import add_word, as_pointer, store_word, wait_for, wake
from scaffe.jit import compiled
from scaffe.threads import Thread

LINE_BYTES = 64
N_NUMBERS = 7
N_SPINS = 50  # times a thread polls the counter, yielding in between, before it sleeps


def mailbox_bytes(n_slots: int) -> int:
    """Bytes of memory that a mailbox needs. ``n_slots`` is a power of two, at least 2."""
    return LINE_BYTES * (1 + n_slots)


class Mailbox:
    """One mailbox, seen from one process. ``memory``: uint8 (mailbox_bytes(n_slots),), shared by all its users and
    aligned to a cache line; ``n_slots``: a power of two, at least 2."""

    def __init__(self, memory: np.ndarray, n_slots: int) -> None:
        self._memory, self._n_slots = memory, n_slots
        self._base = np.int64(memory.ctypes.data)
        self._taken = 0

    def prepare(self) -> None:
        """Initialise the mailbox as empty. One process calls it once, before any other use."""
        words = self._memory.view(np.uint32).reshape(-1, LINE_BYTES // 4)
        words[1:, 0] = np.arange(self._n_slots)

    def put(self, numbers: np.ndarray, waiting: Callable[[], None], seconds: float = 0.2) -> None:
        """Put a message into the mailbox; blocks while no slot is free.

        Args:
            numbers: the message, int64 (7,).
            waiting: called about every ``seconds`` while no slot is free; an exception that it raises ends the wait.
            seconds: time between two such calls.
        """
        ticket, timespec = _ticket(self._base), _timespec(seconds)
        while not _put(self._base, self._n_slots, ticket, numbers, N_SPINS, timespec):
            waiting()

    def take(self, numbers: np.ndarray, seconds: float, n_spins: int = N_SPINS) -> bool:
        """Take the next message. Only one thread may ever call this.

        Args:
            numbers: int64 (7,), receives the message.
            seconds: how long to wait for one; with 0 the caller is not put to sleep.
            n_spins: how often to poll, yielding the core in between, before sleeping.

        Returns:
            False if no message came in time.
        """
        n_spins = n_spins if seconds else 0
        if not _take(self._base, self._n_slots, np.uint32(self._taken), numbers, n_spins, _timespec(seconds)):
            return False
        self._taken = (self._taken + 1) & 0xFFFFFFFF
        return True


class MailboxThread:
    """The base of threads that handle the messages of a mailbox, until all is done or they are stopped."""

    def __init__(self, name: str) -> None:
        """``name``: the thread's. The derived class starts ``_thread``, which runs ``_run``."""
        self._is_stopped = False
        self._thread = Thread(self._run, name)

    def join(self, seconds: float) -> bool:
        """Wait until all is done, at most ``seconds``. Returns whether it is."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End the thread, whatever messages it has not handled."""
        self._is_stopped = True
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError


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
