"""What an iteration is made of, each part measured by itself while all ranks do the same, and how much of its messages
could be hidden behind computing, and was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from statistics import median
from typing import Any

N_ROUNDS = 3
HOOKS = ("before_forward", "after_backward")


@dataclass(frozen=True)
class Parts:
    """Seconds of an iteration's parts, of the slowest rank.

    Attributes:
        forward, backward: of the layers, without messages between.
        parameters, gradients: of the messages before and in forward, and of those in and after backward, when nothing
            is computed.
        update: of what is done between the two.
    """

    forward: float
    backward: float
    parameters: float
    gradients: float
    update: float

    @property
    def hideable(self) -> float:
        """Of the messages, those that the layers are long enough for: of parameters behind forward, of gradients
        behind backward."""
        return min(self.parameters, self.forward) + min(self.gradients, self.backward)

    def hidden(self, iteration: float) -> float:
        """Of the messages, those that an iteration of so many seconds did not show."""
        return min(max(sum(astuple(self)) - iteration, 0.0), self.parameters + self.gradients)

    def row(self, iteration: float) -> dict[str, float]:
        """What a row says of them, in milliseconds; and the share of what could be hidden that was, if anything
        could."""
        hidden = self.hidden(iteration)
        found = {"forward": self.forward, "backward": self.backward, "update": self.update,
                 "messages": self.parameters + self.gradients, "hideable": self.hideable, "hidden": hidden}
        share = {"share_hidden": hidden / self.hideable} if self.hideable > 0 else {}
        return {f"{name}_milliseconds": 1e3 * seconds for name, seconds in found.items()} | share


def measure(solver: Any) -> Parts:
    """Measure a solver's parts; it has trained, and trains no more. Called by all ranks."""
    strategy, net = solver.strategy, solver.net
    layers = range(len(net.nodes))

    def parameters() -> None:
        strategy.before_iteration(0.0, solver.iteration)
        for index in layers:
            strategy.before_forward(index)

    def gradients() -> None:
        for index in reversed(layers):
            strategy.after_backward(index)
        strategy.gradients_ready()

    def update() -> None:
        strategy.apply(0.0, solver.iteration)

    found = []
    for _ in range(N_ROUNDS):
        net.clear_param_diffs()
        with _without_hooks(net):
            passes = [_seconds(solver, step) for step in (strategy.passes.forward, strategy.passes.backward)]
        given = _seconds(solver, gradients)
        updated = _seconds(solver, update)
        found.append((*passes, _seconds(solver, parameters), given, updated))
    forward, backward, *messages, updated = (median(seconds) for seconds in zip(*found, strict=True))
    return Parts(forward, backward, *(messages if solver.communicator.n_ranks > 1 else (0.0, 0.0)), updated)


def _seconds(solver: Any, step: Callable[[], Any]) -> float:
    """Of the slowest rank, until its device has done it."""
    solver.communicator.barrier()
    started = time.perf_counter()
    step()
    solver.net.context.kernels.synchronize()
    return float(max(solver.communicator.allgather_objects(time.perf_counter() - started)))


@contextmanager
def _without_hooks(net: Any) -> Iterator[None]:
    hooks = {name: getattr(net, name) for name in HOOKS}
    vars(net).update({name: [] for name in HOOKS})
    try:
        yield
    finally:
        vars(net).update(hooks)
