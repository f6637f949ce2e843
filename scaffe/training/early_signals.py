"""Notes the signals that arrive while a run starts; the Signals observer acts on them later.

Importing, starting MPI, compiling and building nets take seconds, and on a cluster minutes. By its default action a
signal in that time would end this rank alone. Noted here, it takes effect on all ranks after the first iteration.

Imports hardly more than the standard library, so that a command can call it before anything else.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from scaffe import forking

NUMBERS = (signal.SIGINT, signal.SIGALRM, signal.SIGHUP, signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR1)
UNTOUCHED = (signal.SIG_DFL, signal.default_int_handler)

_noted: list[int] = []


def note_signals() -> None:
    """From now on note the signals in NUMBERS instead of ending the process.

    A second SIGINT (Ctrl-C) still ends it. A signal that is ignored, or has a handler of its own, is left so.
    """
    for number in NUMBERS:
        if signal.getsignal(number) in UNTOUCHED:
            forking.set_handler(number, _note)


def noted_signals() -> list[int]:
    """The numbers of the signals noted so far, in order of arrival."""
    return list(_noted)


def ignore_signals() -> None:
    """From now on ignore the signals that are noted: the run is over, and all that was asked for is done.

    A launcher may hand a signal to this rank when another rank has already stopped all of them for it. Python gives
    signals their default action before MPI finalizes, and that would end a run that has succeeded.
    """
    for number in NUMBERS:
        if signal.getsignal(number) is _note:
            forking.set_handler(number, signal.SIG_IGN)


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Where SIGINT is not noted: Ctrl-C unwinds what runs inside, so that nothing half-written stays, and then ends the
    process by that signal without a word, as other programs do (130 in a shell). A second one ends it at once. Where
    several ranks run, their own hook ends them all."""
    is_ours = signal.getsignal(signal.SIGINT) in UNTOUCHED
    if is_ours:
        forking.set_handler(signal.SIGINT, _interrupt)
    try:
        yield
        if is_ours:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        if sys.excepthook is not sys.__excepthook__:
            raise
        _end_by(signal.SIGINT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _note(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT and number in _noted:
        _end_by(number)
    _noted.append(number)
