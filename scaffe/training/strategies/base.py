"""Strategy: the points of the training loop at which ranks may communicate, each a method that does nothing yet."""

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
        net, updater, communicator, timers: this rank's.
        iter_size: passes whose gradients are accumulated for one update.
        algorithm: the collective algorithm that sums gradients ("mpi", "CB-8", "auto"); it also sends parameters if it
            can.
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
        """The algorithm that sums gradients, with ``:fp16`` or ``:bf16`` if ``-wire`` asks for half precision."""
        wire = getattr(self.options, "wire", "")
        return f"{self.algorithm}:{wire}" if wire else self.algorithm

    def algorithm_for(self, collective: str) -> str:
        """The algorithm for a collective that sends parameters: "auto" if the one given cannot run it."""
        return self.algorithm if self.communicator.can(collective, self.algorithm) else "auto"


class Strategy:
    """How ranks train one net together. A method that is not overridden does nothing.

    Calls of one iteration, in order: ``before_iteration``; in each pass ``before_forward`` and ``after_backward`` for
    every layer; ``gradients_ready``; ``apply``. ``settle`` is called before anyone reads the parameters.
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
        """Indices of the layers before whose forward, or after whose backward, this strategy acts.

        Layers between two of them may run as one piece (a CUDA graph).
        """
        return range(len(self.replica.net.nodes))

    def begin(self) -> None:
        """Once, before the first iteration."""

    def before_iteration(self) -> None:
        """Before the passes of an iteration."""

    def before_forward(self, layer_index: int) -> None:
        """Just before a layer's forward."""

    def after_backward(self, layer_index: int) -> None:
        """Right after a layer's backward. Its gradients are complete only if ``is_last_pass``."""

    def gradients_ready(self) -> None:
        """After the last pass."""

    def apply(self, rate: float, iteration: int) -> None:
        """Update the parameters.

        Args:
            rate: the learning rate.
            iteration: iterations done before this one.
        """

    def settle(self) -> None:
        """Bring the newest parameters to every rank; called before a test, a snapshot and the end."""

    def owned(self) -> Sequence[slice]:
        """The intervals of the flat buffers that this rank updates, and holds the update rule's histories of.

        No two ranks own the same element. Called once, before training.
        """
        return [slice(0, self.replica.net.params.n_elems)]

    def histories(self) -> list[np.ndarray]:
        """The update rule's whole histories, for a snapshot. Called by all ranks.

        Returns:
            on rank 0 one flat array per history, (n_elems,), of the parameters' dtype, in host memory; elsewhere an
            empty list.
        """
        return gather_histories(self.replica.updater, self.replica.communicator)

    def finish(self) -> None:
        """Once, after the last iteration."""

    def iterate(self) -> float:
        """Run the ``iter_size`` passes of one iteration.

        Returns:
            this rank's mean loss over the passes.
        """
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
