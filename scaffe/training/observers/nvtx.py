"""Names a run's phases and layers for a profiler."""

from __future__ import annotations

from scaffe.layers.kernels import nvtx
from scaffe.nets.profiler_ranges import name_layers
from scaffe.training.solver import Observer, Solver


class Ranges(Observer):
    """Has ranges of phases (forward, backward, update, communication, test, snapshot) around those of layers.
    ``asked``: see ``name_layers``."""

    def __init__(self, asked: bool) -> None:
        self._asked = asked

    def begin(self, solver: Solver) -> None:
        for net in (solver.net, *solver.test_nets):
            if name_layers(net, self._asked):
                solver.timers.span = nvtx.named
