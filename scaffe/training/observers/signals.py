"""Signals stop or snapshot a run on all ranks alike; those that arrive while it starts are noted until then.

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
from typing import Any

from scaffe import forking
from scaffe.log import info
from scaffe.training.observers.snapshots import Snapshots
from scaffe.training.solver import Observer, Solver

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


EFFECTS = ("none", "snapshot", "stop")  # in order of strength; a stop snapshots first


class Signals(Observer):
    """Turns a signal into an effect: none, a snapshot, or a snapshot and a stop.

    The ranks agree on the strongest effect that any of them received, so that all stop after the same iteration.
    SIGTERM and SIGUSR1 (SLURM's warning before the time limit) always stop. mpirun keeps SIGINT and SIGHUP for itself:
    under it SIGALRM and SIGUSR2 take their places (jobs/mpirun.sh).

    Args:
        snapshots: the observer that writes the snapshot.
        sigint, sighup: the effects of SIGINT and SIGHUP, names from EFFECTS.
    """

    def __init__(self, snapshots: Snapshots, sigint: str = "stop", sighup: str = "snapshot") -> None:
        self._snapshots = snapshots
        self._effects = {signal.SIGINT: sigint, signal.SIGALRM: sigint, signal.SIGHUP: sighup, signal.SIGUSR2: sighup,
                         signal.SIGTERM: "stop", signal.SIGUSR1: "stop"}
        self._seen: set[int] = set()  # a handler adds in one step: another signal may come within a handler
        self._agreed = 0
        self._before: dict[signal.Signals, Any] = {}

    def begin(self, solver: Solver) -> None:
        """See Observer. After a loss this is called again: the ranks then agree again on what they had agreed on."""
        self._seen.add(self._agreed)
        self._agreed = 0
        if self._before:
            return
        self._before = {number: forking.set_handler(number, self._on_signal) for number in self._effects}
        for number in noted_signals():  # while the run started
            self._on_signal(number, None)

    def finish(self, solver: Solver) -> None:
        """See Observer."""
        for number, handler in self._before.items():
            forking.set_handler(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._seen.add(EFFECTS.index(self._effects[signal.Signals(number)]))

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """Agree here: if the gradients are reduced, that has just synchronized the ranks, and nobody waits long. They
        agree on joining ranks with it, which wait an iteration more where another rank has a stronger effect."""
        wanted = 2 * max(self._seen, default=0) + solver.are_ranks_ready()
        agreed = solver.strategy.in_step.agree(wanted, solver.iteration)
        self._agreed, solver.pauses = agreed // 2, bool(agreed % 2)

    def after_iteration(self, solver: Solver) -> None:
        """See Observer."""
        if self._agreed:
            if EFFECTS[self._agreed] == "stop":
                info(f"Signal received: snapshot and stop after iteration {solver.iteration}")
                solver.stopping = True
            self._snapshots.save(solver)
            for effect in range(1, self._agreed + 1):  # a stronger one that came after they agreed is yet to be done
                self._seen.discard(effect)
            self._agreed = 0
