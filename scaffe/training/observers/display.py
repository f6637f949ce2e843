"""Logs losses, outputs and, with ``debug_info``, magnitudes of blobs, in Caffe's lines; a live line, and a summary."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from scaffe import log
from scaffe.log import info
from scaffe.nets.net import Net
from scaffe.nets.summary import log_values
from scaffe.training.solver import Observer, Solver


def values_of(net: Net) -> list[float]:
    """All elements of all outputs, in the order in which they are logged; on a GPU this waits for the device."""
    to_host = net.context.kernels.to_host
    return [float(v) for _, blob, _ in net.outputs() for v in to_host(blob.data).reshape(-1)]


def shared_values(net: Net) -> list[float]:
    """``values_of`` a training net on one of several ranks: as many as all have, whose mean is to be that over the
    batch."""
    shares, to_host = net.shares.outputs, net.context.kernels.to_host
    found = [(shares.get(name, (1.0, blob.n_elems)), to_host(blob.data).reshape(-1)) for name, blob, _ in net.outputs()]
    return [factor * float(v) for (factor, length), values in found for v in values[:length]]


def by_name(net: Net, values: Sequence[float]) -> dict[str, float]:
    """``values_of`` by the outputs' names; a number follows the names of outputs that have several elements."""
    names = [f"{name}/{i}" if length > 1 else name for name, length, _ in _lengths(net) for i in range(length)]
    return dict(zip(names, values, strict=True))


def _lengths(net: Net) -> list[tuple[str, int, float]]:
    shares = net.shares.outputs
    return [(name, shares.get(name, (1.0, blob.n_elems))[1], weight) for name, blob, weight in net.outputs()]


def output_lines(net: Net, values: Sequence[float]) -> Iterator[str]:
    """Lines like ``loss = 0.66 (* 1 = 0.66 loss)``, one per element.
    ``values``: as ``values_of`` returns them."""
    names = [(name, weight) for name, length, weight in _lengths(net) for _ in range(length)]
    for (name, weight), value in zip(names, values, strict=True):
        yield f"{name} = {value:g}" + (f" (* {weight:g} = {weight * value:g} loss)" if weight else "")


def logged_lines(net: Net, values: Sequence[float], kind: str) -> Iterator[str]:
    """Lines like ``    Train net output #0: loss = 0.66 (* 1 = 0.66 loss)``; kind is "Train" or "Test"."""
    for position, line in enumerate(output_lines(net, values)):
        yield f"    {kind} net output #{position}: {line}"


class Display(Observer):
    """Logs the mean of the last ``average_loss`` iterations' losses, averaged over the ranks that are in step."""

    def begin(self, solver: Solver) -> None:
        self._losses: deque[Any] = deque(maxlen=max(solver.param.average_loss, 1))
        self._last = (solver.iteration, time.perf_counter())

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        self._losses.append(loss)
        display, iteration = solver.param.display, solver.iteration
        if not display or iteration % display:
            return
        mine = [float(sum(self._losses)) / len(self._losses), *shared_values(solver.net)]
        peers = solver.strategy.in_step.peers
        by = solver.net.shares.weight if peers.n_ranks < solver.communicator.n_ranks else 1.0
        smoothed, *outputs = solver.mean_over_ranks([value / by for value in mine], peers)
        info(f"Iteration {iteration} ({self._pace(iteration, display)}), loss = {smoothed:g}")
        for line in logged_lines(solver.net, outputs, "Train"):
            info(line)
        info(f"Iteration {iteration}, lr = {rate:g}")
        values = {"smoothed_loss": smoothed, **by_name(solver.net, outputs), "learning_rate": rate}
        solver.tell("measured", "train", values)

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


class DebugInfo(Observer):
    """Logs the mean magnitude of every blob, parameter and gradient, in the lines of Caffe 1.0."""

    def begin(self, solver: Solver) -> None:
        self._shown = False
        log_values(solver.net, lambda: self._shown)
        for net in solver.test_nets:
            log_values(net)

    def before_iteration(self, solver: Solver) -> None:
        display = solver.param.display
        self._shown = bool(display) and solver.iteration % display == 0


REDRAW_SECONDS = 0.2


def line_text(iteration: int, end: int, loss: float, pace: float, n_images: int) -> str:
    """The live line, at ``pace`` iterations a second, each of ``n_images``."""
    left = int((end - iteration) / pace)
    return (f"iteration {iteration}/{end}  loss {loss:.4g}  {pace * n_images:.0f} images/s  "
            f"{left // 60}:{left % 60:02d} left")


class Progress(Observer):
    """Shows a live line (rank 0, on its or mpirun's terminal), and at the end images/s and each activity's share.
    ``images_per_iteration``: of all ranks and passes together; 0 if the net has no batch."""

    def __init__(self, images_per_iteration: int) -> None:
        self._images = images_per_iteration
        self._drawn = 0.0
        self._loss = 0.0

    def begin(self, solver: Solver) -> None:
        self._is_live = solver.communicator.rank == 0 and log.begin_live()
        self._first, self._started = solver.iteration, time.perf_counter()
        info(f"Training on {solver.communicator.n_ranks} rank(s), {self._images} images an iteration")
        if solver.shares and solver.shares[0].is_uneven:
            info(f"Uneven shares: {solver.shares[0].text()}; losses and gradients are weighted by it")

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
