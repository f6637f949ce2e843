"""The line that a Jupyter notebook shows below a cell while a solver steps."""

from __future__ import annotations

import sys
import time
from typing import Any

from scaffe.training.observers.display import REDRAW_SECONDS, line_text
from scaffe.training.solver import Observer, Solver


def kernel_shell() -> Any:
    """The shell of the notebook that this process computes for; None outside notebooks."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


class StepLine(Observer):
    """Shows iteration, loss, images a second and the time left; all steps of one cell share a line.

    Args:
        shell: the notebook's shell, from ``kernel_shell``.
        images_per_iteration: images of all ranks and passes together.
    """

    def __init__(self, shell: Any, images_per_iteration: int) -> None:
        self._shell, self._images = shell, images_per_iteration
        self._cell, self._handle = -1, None
        self._drawn = float("-inf")
        self._first = self._end = 0

    def start(self, solver: Solver, n_iterations: int) -> None:
        """Begin a line for ``n_iterations`` iterations."""
        self._first, self._end, self._started = solver.iteration, solver.iteration + n_iterations, time.perf_counter()

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        self._loss = loss

    def after_iteration(self, solver: Solver) -> None:
        """A loop of single steps does not draw at each."""
        now = time.perf_counter()
        is_end = solver.iteration == self._end and self._end - self._first > 1
        if is_end or now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            pace = (solver.iteration - self._first) / (now - self._started)
            self._show(line_text(solver.iteration, self._end, float(self._loss), pace, self._images))

    def _show(self, text: str) -> None:
        from IPython.display import display

        content = {"text/plain": text}
        if self._handle is None or self._cell != self._shell.execution_count:
            self._cell, self._handle = self._shell.execution_count, display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
