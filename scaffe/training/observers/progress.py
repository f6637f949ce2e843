"""A live line on a terminal, and the summary at the end."""

from __future__ import annotations

import sys
import time

from scaffe.log import info, write
from scaffe.training.solver import Observer, Solver

REDRAW_SECONDS = 0.2


class Progress(Observer):
    """Shows a live line (rank 0, on a terminal only) and at the end images/s and the share of time per activity.

    Args:
        images_per_iteration: of all ranks and passes together; 0 if the net has no batch.
    """

    def __init__(self, images_per_iteration: int) -> None:
        self._images = images_per_iteration
        self._drawn = 0.0
        self._loss = 0.0

    def begin(self, solver: Solver) -> None:
        """See Observer."""
        self._is_live = solver.communicator.rank == 0 and sys.stderr is not None and sys.stderr.isatty()
        self._first, self._started = solver.iteration, time.perf_counter()
        info(f"Training on {solver.communicator.n_ranks} rank(s), {self._images} images an iteration")

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """See Observer."""
        self._loss = loss

    def after_iteration(self, solver: Solver) -> None:
        """See Observer."""
        now = time.perf_counter()
        if not self._is_live or now - self._drawn < REDRAW_SECONDS:
            return
        self._drawn = now
        pace = (solver.iteration - self._first) / (now - self._started)
        left = int((solver.param.max_iter - solver.iteration) / pace)
        write(f"iteration {solver.iteration}/{solver.param.max_iter}  loss {self._loss:.4g}  "
              f"{pace * self._images:.0f} images/s  {left // 60}:{left % 60:02d} left")

    def finish(self, solver: Solver) -> None:
        """See Observer."""
        elapsed = time.perf_counter() - self._started
        n_iters = solver.iteration - self._first
        if not n_iters:
            return
        shares = solver.timers.shares(elapsed)
        training = elapsed - solver.timers.seconds.get("test", 0.0) - solver.timers.seconds.get("snapshot", 0.0)
        total, hidden = solver.timers.hidden()
        where = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
        info(f"Summary: {n_iters} iterations in {elapsed:.1f} s on {solver.communicator.n_ranks} rank(s), "
             f"{n_iters * self._images / training:.0f} images/s; {where}")
        if solver.communicator.n_ranks > 1:
            info(f"Communication: {total:.2f} s, {hidden:.1%} of it hidden behind computing")
