"""Signals that come while a run starts: noted from its first line on, for the observer that acts on them later.

Importing, starting MPI, compiling and building nets take seconds, on a cluster minutes. A signal in that time would
end the run by its default action, on this rank alone; noted here, it takes effect after the first iteration, on all.

Imports nothing but the standard library, so that it can be the first thing that a command does.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGALRM, signal.SIGHUP, signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR1)
UNTOUCHED = (signal.SIG_DFL, signal.default_int_handler)

_noted: list[int] = []


def note_signals() -> None:
    """Note these signals from now on instead of ending; a second Ctrl-C still ends it. Ignored ones stay ignored."""
    for number in NUMBERS:
        if signal.getsignal(number) in UNTOUCHED:
            signal.signal(number, _note)


def noted_signals() -> list[int]:
    """The numbers noted so far."""
    return list(_noted)


def _note(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT and number in _noted:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    _noted.append(number)
