"""Strategy: the points of the training loop at which ranks communicate, and the interfaces of which it is composed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.layers.base.registry import Registry
from scaffe.training.strategies.fault_tolerance import FaultTolerance
from scaffe.training.strategies.roles import Replica, Roles
from scaffe.training.strategies.state_placement import StatePlacement
from scaffe.training.strategies.transfers import Bucket
from scaffe.training.updater import Updater


class InStep:
    """The ranks agree in every iteration, by a collective call. ``peers``: the ranks that do the same iteration at the
    same time. Those of an asynchronous strategy are in step only after ``synchronize_parameters``: there a rank's only
    peer is itself."""

    def __init__(self, peers: Communicator) -> None:
        self.peers = peers

    def agree(self, level: int, iteration: int) -> int:
        """Agree on what all ranks do after the same iteration (stop, snapshot). Called in every iteration. ``level``:
        what this rank wants; the highest of all ranks' counts. 0 for nothing."""
        agreed = np.array([level], np.int32)
        if self.peers.n_ranks > 1:
            self.peers.allreduce(agreed, "max", "mpi")
        return int(agreed[0])


class EagerUpdate:
    """Updates some buckets right after their backward, instead of in ``apply``. The base class offers no buckets.

    Attributes:
        own_updaters: updaters beside the replica's, and before it in each iteration, whose histories a memory plan may
            move.
        refreshes_parameters: whether the strategy writes the buckets' parameters before each forward, so that a rank
            need not keep them.
        may_refresh_parameters: whether it does so before some forwards, and otherwise uses what the rank has.
    """

    own_updaters: Sequence[Updater] = ()
    refreshes_parameters = False
    may_refresh_parameters = False

    @property
    def updates_alone(self) -> bool:
        """Whether only the update reads the gradients, so that they need not all be in memory together."""
        return False

    def buckets(self) -> Sequence[Bucket]:
        """The buckets that may be updated so: no other gradients count in their update, and their sums have the bits
        that they have together with the rest."""
        return ()

    def take(self, buckets: Sequence[Bucket]) -> None:
        """Have ``update_in_backward`` called for some of ``buckets`` in every iteration from now on. Called by all
        ranks, before ``begin``."""

    def update_in_backward(self, bucket: Bucket, rate: float, iteration: int) -> None:
        """Sum a bucket's gradients, update it, and give all ranks its new parameters. Called right after its backward,
        by all ranks in the same order. ``bucket``: one that was taken, or some rows of it: then ``place`` is their
        interval."""
        raise NotImplementedError

    def refresher(self, bucket: Bucket) -> Callable[[], None] | None:
        """Where parameters are refreshed: a function that writes a bucket's once more between its forward and its
        update, with the same values; None where the values may have changed by then."""
        return None


strategies: Registry[type[Strategy]] = Registry("strategy", "scaffe.training.strategies")


class Strategy:
    """How ranks train one net together: a schedule, and the interfaces of whatever else the strategy decides.

    Calls of one iteration, in order: ``before_iteration``; in each pass ``before_forward`` and ``after_backward`` for
    every layer; ``gradients_ready``; ``apply``. ``synchronize_parameters`` is called before anyone reads parameters.

    Args:
        state: where parameters and histories are; by default the root owns them.
        in_step: which ranks are in step; by default all workers.

    Attributes:
        roles: what each rank does, decided before nets are built.
        fault_tolerance_type: makes ``fault_tolerance``, and answers questions about it before nets are built.
        fault_tolerance: what happens when a rank is lost.
        eager: how layers are updated within backward, which memory plans ask for.
        is_last_pass: whether gradients are complete after this pass (``iter_size``).
        passes: runs forward and backward: the net, or recordings of it.
        acts_between_layers: whether it is called at every layer, which one rank alone need not pay for.
        hook_points: indices of the layers before whose forward, or after whose backward, it acts. Layers between two of
            them may run as one piece (a CUDA graph).
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
        self.acts_between_layers = replica.communicator.n_ranks > 1
        self.hook_points: Collection[int] = range(len(replica.net.nodes))

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
        """Update the parameters at a learning rate, after so many iterations."""

    def synchronize_parameters(self) -> None:
        """Bring the newest parameters to every rank; called before a test, a snapshot and the end."""

    def finish(self) -> None:
        """Once, after the last iteration."""

    def counters(self) -> dict[str, float]:
        """What this rank has counted so far, by name: a timeline shows the rates, per second, as curves."""
        return {}

    def iterate(self, rate: float, iteration: int) -> float:
        """Run the ``iter_size`` passes of one iteration; the arguments are those of ``apply``.
        Returns this rank's mean loss over the passes."""
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
