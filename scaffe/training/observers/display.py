"""Caffe's display lines: loss, net outputs and learning rate every ``display`` iterations."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from scaffe.log import info
from scaffe.training.observers.outputs import by_name, log_outputs, shared_values
from scaffe.training.solver import Observer, Solver


class Display(Observer):
    """Logs the mean of the last ``average_loss`` iterations' losses, averaged over the ranks that are in step."""

    def begin(self, solver: Solver) -> None:
        """See Observer."""
        self._losses: deque[Any] = deque(maxlen=max(solver.param.average_loss, 1))
        self._last = (solver.iteration, time.perf_counter())

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """See Observer."""
        self._losses.append(loss)
        display, iteration = solver.param.display, solver.iteration
        if not display or iteration % display:
            return
        mine, peers = [float(sum(self._losses)) / len(self._losses), *shared_values(solver.net)], solver.strategy.peers
        by = solver.net.shares.weight if peers.n_ranks < solver.communicator.n_ranks else 1.0
        smoothed, *outputs = solver.mean_over_ranks([value / by for value in mine], peers)
        info(f"Iteration {iteration} ({self._pace(iteration, display)}), loss = {smoothed:g}")
        log_outputs(solver.net, outputs, "Train")
        info(f"Iteration {iteration}, lr = {rate:g}")
        solver.report("train", {"smoothed_loss": smoothed, **by_name(solver.net, outputs), "learning_rate": rate})

    def _pace(self, iteration: int, display: int) -> str:
        now = time.perf_counter()
        elapsed = now - self._last[1]
        n_iters = iteration - self._last[0]
        self._last = (iteration, now)
        return f"{n_iters / elapsed if elapsed else 1:g} iter/s, {elapsed:g}s/{display} iters"

    def finish(self, solver: Solver) -> None:
        """If the iteration after the last would be displayed, run one more forward and log its loss, as Caffe does."""
        display = solver.param.display
        if display and solver.iteration % display == 0 and not solver.stopping:
            loss = solver.net.forward()
            self._losses.append(loss)
            smoothed, = solver.mean_over_ranks([float(sum(self._losses)) / len(self._losses)], solver.communicator)
            info(f"Iteration {solver.iteration}, loss = {smoothed:g}")
