"""Snapshots every ``snapshot`` iterations, at the end, and when a signal asks for one; signals also stop a run."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Any

from scaffe import forking, temporary
from scaffe.files import hdf5
from scaffe.log import info
from scaffe.proto.byte_text import path_of
from scaffe.training.checkpoint import save_checkpoint
from scaffe.training.early_signals import noted_signals
from scaffe.training.solver import Observer, Solver


class Snapshots(Observer):
    """Writes Caffe's two files at rank 0: the parameters and the solver's state."""

    def __init__(self) -> None:
        self._last, self._has_begun, self._goes_on = -1, False, False

    def begin(self, solver: Solver) -> None:
        """Remove temporary files that a killed run or rank with this prefix left behind. Raises UserError for a net
        that the format cannot hold."""
        param = solver.param
        if param.snapshot_format == param.HDF5:
            named = [node.name for node in solver.net.nodes if node.layer.blobs]
            hdf5.check_names(path_of(param.snapshot_prefix), named)
        self._clear(solver)
        self._last, self._goes_on = -1, self._has_begun and solver.iteration > 0  # lost ranks were perhaps writing
        self._has_begun = True

    def _clear(self, solver: Solver) -> None:
        if solver.communicator.rank == 0:
            prefix = Path(path_of(solver.param.snapshot_prefix))
            temporary.remove_abandoned(prefix.parent, prefix.name)

    def before_iteration(self, solver: Solver) -> None:
        """The first time after a loss: write what is due, which the loss may have ended."""
        if self._goes_on:
            self.after_iteration(solver)

    def after_iteration(self, solver: Solver) -> None:
        self._goes_on = False
        if self._is_due(solver):
            self.save(solver)

    @staticmethod
    def _is_due(solver: Solver) -> bool:
        return bool(solver.param.snapshot) and solver.iteration % solver.param.snapshot == 0

    def finish(self, solver: Solver) -> None:
        """See Observer. As in Caffe, one is written unless ``snapshot`` divides the iteration, also if nothing has been
        trained."""
        self.before_iteration(solver)
        if solver.param.snapshot_after_train and not self._is_due(solver):
            self.save(solver)
        self._clear(solver)  # of a rank that was lost so late that its process was not gone when the others went on

    def save(self, solver: Solver) -> None:
        """Write both files unless this iteration has been saved already. Called by all ranks."""
        if self._last != solver.iteration:
            self._last = solver.iteration
            with solver.timers("snapshot"):
                save_checkpoint(solver)


EFFECTS = ("none", "snapshot", "stop")  # in order of strength; a stop snapshots first


class Signals(Observer):
    """Turns a signal into an effect: none, a snapshot, or a snapshot and a stop.

    The ranks agree on the strongest effect that any of them received, so that all stop after the same iteration.
    SIGTERM and SIGUSR1 (SLURM's warning before the time limit) always stop. mpirun keeps SIGINT and SIGHUP for itself:
    under it SIGALRM and SIGUSR2 take their places (jobs/mpirun.sh).

    Args:
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
