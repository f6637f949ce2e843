"""The seams of the training loop that a strategy fills."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.flags import Flags
from scaffe.layers.base.registry import Registry
from scaffe.nets.net import Net
from scaffe.training.histories import gather_histories
from scaffe.training.timers import Timers
from scaffe.training.updater import Updater

strategies: Registry[type[Strategy]] = Registry("strategy", "scaffe.training.strategies")


@dataclass
class Replica:
    """What a strategy trains: this rank's net, its updater, and the way to the other ranks.

    Attributes:
        net, updater, communicator, timers: the parts.
        iter_size: passes whose gradients add up to one update.
        algorithm: how to sum gradients ("mpi", "CB-8", "auto"), and to send parameters where it can.
        options: the command line's other options, by name.
    """

    net: Net
    updater: Updater
    communicator: Communicator
    timers: Timers
    iter_size: int = 1
    algorithm: str = "auto"
    options: Any = None

    @property
    def sum_algorithm(self) -> str:
        """How to sum gradients, with the half precision that they travel in where ``-wire`` asks for one."""
        wire = getattr(self.options, "wire", "")
        return f"{self.algorithm}:{wire}" if wire else self.algorithm

    def algorithm_for(self, collective: str) -> str:
        """How to run a collective that sends parameters."""
        return self.algorithm if self.communicator.can(collective, self.algorithm) else "auto"


class Strategy:
    """A strategy does nothing at each seam unless it overrides it.

    Order of one iteration: before_iteration, then per pass before_forward(layer) and after_backward(layer) of each
    layer, gradients_ready, apply. ``settle`` comes before anyone looks at the parameters.
    """

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """Add this strategy's own flags to those of ``train``; their values come as ``replica.options``.

        Two strategies may share a flag: both add it, with the same words.
        """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.is_last_pass = True  # gradients are complete after this pass (iter_size)
        self.passes: Any = replica.net  # runs forward and backward: the net, or recordings of it

    @property
    def seams(self) -> Collection[int]:
        """Layers before whose forward or after whose backward this strategy acts: between them all may be one piece."""
        return range(len(self.replica.net.nodes))

    def begin(self) -> None:
        """Once, before the first iteration."""

    def before_iteration(self) -> None:
        """Before the passes of an iteration."""

    def before_forward(self, layer_index: int) -> None:
        """Just before a layer's forward."""

    def after_backward(self, layer_index: int) -> None:
        """Right after a layer's backward; its gradients are complete if ``is_last_pass``."""

    def gradients_ready(self) -> None:
        """After the last pass."""

    def apply(self, rate: float, iteration: int) -> None:
        """Change the parameters."""

    def settle(self) -> None:
        """Bring the newest parameters to every rank (before a test, a snapshot or the end)."""

    def owned(self) -> Sequence[slice]:
        """The intervals of the flat buffers that this rank updates: it holds the update rule's histories of no others.

        No two ranks own the same element. Called once, before training.
        """
        return [slice(0, self.replica.net.params.n_elems)]

    def histories(self) -> list[np.ndarray]:
        """The update rule's histories as a whole, for a snapshot. Called by all ranks.

        Returns:
            on rank 0 one flat array a history, (n_elems,) like the parameters and in the host's memory; else nothing.
        """
        return gather_histories(self.replica.updater, self.replica.communicator)

    def finish(self) -> None:
        """Once, after the last iteration."""

    def iterate(self) -> float:
        """The passes of one iteration. Returns the mean loss."""
        replica, loss = self.replica, 0.0
        self.before_iteration()
        replica.net.clear_param_diffs()
        for i in range(replica.iter_size):
            self.is_last_pass = i == replica.iter_size - 1
            with replica.timers.forward(replica.net):
                loss += self.passes.forward()
            with replica.timers("backward"):
                self.passes.backward()
        self.gradients_ready()
        return loss / replica.iter_size
