"""Waiting for a shared word without burning the core: ranks may well outnumber cores."""

from scaffe.collectives.shared.atomics import FUTEX_CALL, libc_sched_yield, libc_syscall, load_word
from scaffe.jit import compiled

FUTEX_WAIT, FUTEX_WAKE, ALL_WAITERS = 0, 1, 0x7FFFFFFF


@compiled
def reached(address, epoch):
    """True when the word at `address` is at or past `epoch`, counting modulo 2**32."""
    return ((load_word(address) - epoch) & 0xFFFFFFFF) < 0x80000000


@compiled
def wake(address):
    """Wake every process that waits for the word at `address`."""
    libc_syscall(FUTEX_CALL, address, FUTEX_WAKE, ALL_WAITERS, 0, 0, 0)


@compiled
def wait_for(address, epoch, n_spins, timespec):
    """Wait until the word has reached `epoch`. False when the time in `timespec` (two int64) passed first.

    Looks `n_spins` times, giving way to other processes in between, before it sleeps in the kernel.
    """
    for _ in range(n_spins):
        if reached(address, epoch):
            return True
        libc_sched_yield()
    while True:
        seen = load_word(address)
        if ((seen - epoch) & 0xFFFFFFFF) < 0x80000000:
            return True
        libc_syscall(FUTEX_CALL, address, FUTEX_WAIT, seen, timespec.ctypes.data, 0, 0)
        if load_word(address) == seen:
            return reached(address, epoch)
