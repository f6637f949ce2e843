"""Signals that arrive while a run starts are noted here; the Signals observer acts on them later.

Importing, starting MPI, compiling and building nets take seconds, and on a cluster minutes. By its default action a
signal in that time would end this rank alone. Noted here, it takes effect on all ranks after the first iteration.

Imports hardly more than the standard library, so that a command can call it before anything else.
"""

from __future__ import annotations

import os
import signal
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
    """From now on ignore the signals that are noted, but SIGINT: the run is over, and all that was asked for is done.

    A launcher may hand a signal to this rank when another rank has already stopped all of them for it. Python gives
    signals their default action before MPI finalizes, and that would end a run that has succeeded.
    """
    for number in NUMBERS:
        if number != signal.SIGINT and signal.getsignal(number) is _note:
            forking.set_handler(number, signal.SIG_IGN)


def _note(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT and number in _noted:
        forking.set_handler(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    _noted.append(number)
