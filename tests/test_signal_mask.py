"""Signals are blocked during a call, all but those that it raises itself, and as before afterwards."""

import ctypes
import signal

import pytest

from scaffe import signal_mask

OWN = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT}
UNBLOCKABLE = {signal.SIGKILL, signal.SIGSTOP}
LIBC = ctypes.CDLL(None)


def inside() -> set[int]:
    """The mask that a call sees: pthread_sigmask itself is the function called, and says it."""
    there = ctypes.create_string_buffer(signal_mask.MASK_BYTES)
    status = signal_mask.caller(LIBC.pthread_sigmask)(int(signal.SIG_BLOCK), 0, ctypes.addressof(there), 0)
    assert status == 0
    return {number for number in signal.valid_signals() if LIBC.sigismember(there, number)}


@pytest.mark.parametrize("before", [set(), {signal.SIGUSR2, signal.SIGFPE}])
def test_the_mask_is_full_inside_and_as_before_outside(before):
    old = signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        assert inside() == signal.valid_signals() - (OWN - before) - UNBLOCKABLE
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def test_what_a_call_returns_and_takes():
    into, words = ctypes.create_string_buffer(8), ctypes.create_string_buffer(b"abcdefg")
    assert signal_mask.caller(LIBC.abs)(-5, 0, 0, 0) == 5
    signal_mask.caller(LIBC.memcpy)(ctypes.addressof(into), ctypes.addressof(words), 3, 0)
    assert into.raw == b"abc" + bytes(5)
