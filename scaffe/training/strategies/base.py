"""Strategy: the points of the training loop at which ranks communicate, each a method that does nothing yet."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from scaffe.layers.base.registry import Registry
from scaffe.training.strategies.eager_update import EagerUpdate
from scaffe.training.strategies.fault_tolerance import FaultTolerance
from scaffe.training.strategies.in_step import InStep
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.roles import Roles
from scaffe.training.strategies.state_placement import StatePlacement

strategies: Registry[type[Strategy]] = Registry("strategy", "scaffe.training.strategies")


class Strategy:
    """How ranks train one net together: a schedule, and the interfaces of whatever else the strategy decides.

    Calls of one iteration, in order: ``before_iteration``; in each pass ``before_forward`` and ``after_backward`` for
    every layer; ``gradients_ready``; ``apply``. ``synchronize_parameters`` is called before anyone reads parameters.

    Args:
        replica: what this rank trains, and its way to the other ranks.
        state: where parameters and histories are; by default the root owns them.
        in_step: which ranks are in step; by default all workers.

    Attributes:
        roles: what each rank does, decided before nets are built.
        fault_tolerance_type: makes ``fault_tolerance``, and answers questions about it before nets are built.
        replica, state, in_step: as given.
        fault_tolerance: what happens when a rank is lost.
        eager: how layers are updated within backward, which memory plans ask for.
        is_last_pass: whether gradients are complete after this pass (``iter_size``).
        passes: runs forward and backward: the net, or recordings of it.
        has_converged: whether nothing more is to be gained, so that training ends before ``max_iter``.
    """

    roles: ClassVar[Roles] = Roles()
    fault_tolerance_type: ClassVar[type[FaultTolerance]] = FaultTolerance
    has_converged = False

    def __init__(self, replica: Replica, state: StatePlacement | None = None, in_step: InStep | None = None) -> None:
        self.replica = replica
        self.state = state or StatePlacement(replica)
        self.in_step = in_step or InStep(replica.workers)
        self.fault_tolerance = self.fault_tolerance_type(replica, self.state)
        self.eager = EagerUpdate()
        self.is_last_pass = True
        self.passes: Any = replica.net

    @property
    def acts_between_layers(self) -> bool:
        """Whether it is called at every layer, which one rank alone need not pay for."""
        return self.replica.communicator.n_ranks > 1

    @property
    def hook_points(self) -> Collection[int]:
        """Indices of the layers before whose forward, or after whose backward, it acts. Layers between two of them may
        run as one piece (a CUDA graph)."""
        return range(len(self.replica.net.nodes))

    @property
    def images_per_pass(self) -> int:
        """Images of one pass where it is not one of the net's batches on each rank; otherwise 0."""
        return 0

    def begin(self) -> None:
        """Once, before the first iteration."""

    def before_iteration(self, rate: float, iteration: int) -> None:
        """Before the passes of an iteration; its arguments are those of ``apply``."""

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

    def synchronize_parameters(self) -> None:
        """Bring the newest parameters to every rank; called before a test, a snapshot and the end."""

    def finish(self) -> None:
        """Once, after the last iteration."""

    def counters(self) -> dict[str, float]:
        """What this rank has counted so far, by name: a timeline shows the rates, per second, as curves."""
        return {}

    def iterate(self, rate: float, iteration: int) -> float:
        """Run the ``iter_size`` passes of one iteration; the arguments are those of ``apply``.

        Returns:
            this rank's mean loss over the passes.
        """
        replica, loss = self.replica, 0.0
        self.before_iteration(rate, iteration)
        replica.net.clear_param_diffs()
        for i in range(replica.iter_size):
            self.is_last_pass = i == replica.iter_size - 1
            with replica.timers.forward(replica.net):
                loss += self.passes.forward()
            with replica.timers("backward"):
                self.passes.backward()
        self.gradients_ready()
        return loss / replica.iter_size
