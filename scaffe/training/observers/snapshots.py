"""Snapshots every ``snapshot`` iterations, at the end, and when a signal asks for one."""

from __future__ import annotations

from pathlib import Path

from scaffe import temporary
from scaffe.files import hdf5
from scaffe.proto.byte_text import path_of
from scaffe.training.checkpoint import save_checkpoint
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
