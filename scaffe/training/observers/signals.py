"""Stops or snapshots a run on all ranks alike when a signal has come."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from scaffe import forking
from scaffe.log import info
from scaffe.training.early_signals import noted_signals
from scaffe.training.observers.snapshots import Snapshots
from scaffe.training.solver import Observer, Solver

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
        if self._agreed:
            if EFFECTS[self._agreed] == "stop":
                info(f"Signal received: snapshot and stop after iteration {solver.iteration}")
                solver.stopping = True
            self._snapshots.save(solver)
            for effect in range(1, self._agreed + 1):  # a stronger one that came after they agreed is yet to be done
                self._seen.discard(effect)
            self._agreed = 0
