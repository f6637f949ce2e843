"""The solver's ``debug_info``: logs the training net's values at displayed iterations, the test nets' always."""

from __future__ import annotations

from scaffe.nets.debug_info import log_values
from scaffe.training.solver import Observer, Solver


class DebugInfo(Observer):
    """Logs the mean magnitude of every blob, parameter and gradient, in the lines of Caffe 1.0."""

    def begin(self, solver: Solver) -> None:
        """See Observer."""
        self._shown = False
        log_values(solver.net, lambda: self._shown)
        for net in solver.test_nets:
            log_values(net)

    def before_iteration(self, solver: Solver) -> None:
        """See Observer."""
        display = solver.param.display
        self._shown = bool(display) and solver.iteration % display == 0
