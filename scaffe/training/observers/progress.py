"""A live line on a terminal, and the summary at the end."""

from __future__ import annotations

import time

from scaffe import log
from scaffe.log import info
from scaffe.training.solver import Observer, Solver

REDRAW_SECONDS = 0.2


def line_text(iteration: int, end: int, loss: float, pace: float, n_images: int) -> str:
    """The live line.

    Args:
        iteration, end: iterations done, and how many there will be.
        loss: the latest.
        pace: iterations a second.
        n_images: of an iteration.
    """
    left = int((end - iteration) / pace)
    return (f"iteration {iteration}/{end}  loss {loss:.4g}  {pace * n_images:.0f} images/s  "
            f"{left // 60}:{left % 60:02d} left")


class Progress(Observer):
    """Shows a live line (rank 0, on its or mpirun's terminal), and at the end images/s and each activity's share.

    Args:
        images_per_iteration: of all ranks and passes together; 0 if the net has no batch.
    """

    def __init__(self, images_per_iteration: int) -> None:
        self._images = images_per_iteration
        self._drawn = 0.0
        self._loss = 0.0

    def begin(self, solver: Solver) -> None:
        self._is_live = solver.communicator.rank == 0 and log.begin_live()
        self._first, self._started = solver.iteration, time.perf_counter()
        info(f"Training on {solver.communicator.n_ranks} rank(s), {self._images} images an iteration")
        if solver.shares and solver.shares[0].is_uneven:
            info(f"Uneven shares: {solver.shares[0].text()}; losses and gradients weigh by images")

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        self._loss = loss

    def after_iteration(self, solver: Solver) -> None:
        now = time.perf_counter()
        if not self._is_live or now - self._drawn < REDRAW_SECONDS:
            return
        self._drawn = now
        pace = (solver.iteration - self._first) / (now - self._started)
        log.live(line_text(solver.iteration, solver.param.max_iter, self._loss, pace, self._images))

    def finish(self, solver: Solver) -> None:
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
