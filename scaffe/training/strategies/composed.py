"""A strategy composed of two transfer policies: one sends parameters, one sums gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from scaffe.flags import Flags
from scaffe.training.fault_tolerance.options import tolerates_rank_loss
from scaffe.training.strategies.base import EagerUpdate, Strategy
from scaffe.training.strategies.roles import Replica, Roles
from scaffe.training.strategies.state_placement import (
    OwnedBy,
    ReplicatedState,
    StatePlacement,
    SynchronousFaultTolerance,
    on_root,
)
from scaffe.training.strategies.transfers import Bucket, Buckets, GradientTransfer, ParameterTransfer, add_bucket_flag


def add_wire_flag(flags: Flags) -> None:
    """Add ``-wire``."""
    flags.flag("wire", "", "round gradients while they are sent", choices=("fp16", "bf16"))


class Composed(Strategy):
    """Calls its two policies at the right points of the loop; the root updates. Subclasses name the policies.

    Attributes:
        parameter_transfer, gradient_transfer: their classes. A rank alone uses the base classes, which do nothing.
        collectives: names of the collectives that the policies run on buckets.
    """

    roles = Roles(add_wire_flag, add_bucket_flag, trains_parts=True)
    fault_tolerance_type = SynchronousFaultTolerance
    parameter_transfer: ClassVar[type[ParameterTransfer]]
    gradient_transfer: ClassVar[type[GradientTransfer]]
    collectives: ClassVar[tuple[str, ...]] = ("bcast", "reduce")

    @staticmethod
    def ownership(replica: Replica, buckets: Buckets) -> OwnedBy:
        """Who owns which part of parameters and histories: the root everything."""
        return on_root(replica)

    def __init__(self, replica: Replica) -> None:
        self.buckets = Buckets(replica, self.collectives)
        owned_by = self.ownership(replica, self.buckets)
        self.copies = ReplicatedState(replica, owned_by, self.buckets.frozen)
        super().__init__(replica, StatePlacement(replica, owned_by, self.copies.kept))
        self.parameters, self.gradients = ParameterTransfer(), GradientTransfer()
        if replica.communicator.n_ranks > 1:
            self.parameters = self.parameter_transfer(replica, self.buckets)  # type: ignore[call-arg]
            self.gradients = self.gradient_transfer(replica, self.buckets)  # type: ignore[call-arg]
        replica.updater.writes_copies = replica.communicator.n_ranks == 1  # else parameters come in messages
        self.gradients.algorithm = self.copies.algorithm or replica.sum_algorithm
        self.eager = EagerTransfer(replica, self.buckets, self.parameters, self.gradients)
        self.acts_between_layers |= replica.intra_replica.acts
        self.hook_points = {*self.parameters.hook_points, *self.gradients.hook_points}

    def begin(self) -> None:
        self.parameters.begin()

    def before_iteration(self, rate: float, iteration: int) -> None:
        self.parameters.post()

    def before_forward(self, layer_index: int) -> None:
        self.parameters.wait_for(layer_index)

    def after_backward(self, layer_index: int) -> None:
        """In the last pass the layer's gradients are complete: start to sum them."""
        if self.is_last_pass:
            for index in self.replica.intra_replica.completed(layer_index):
                self.gradients.completed(index)

    def gradients_ready(self) -> None:
        for index in self.replica.intra_replica.finish():
            self.gradients.completed(index)
        self.gradients.finish()
        self.copies.exchange()

    def apply(self, rate: float, iteration: int) -> None:
        replica = self.replica
        if replica.updater.everything:
            clips, diff = replica.updater.param.clip_gradients >= 0, replica.net.params.diff
            squares = replica.intra_replica.sum_of_squares(diff) if clips else None
            with replica.timers("update"):
                replica.updater.check(self.buckets.runs)
                replica.updater.update(rate, iteration, replica.communicator.n_ranks, squares)
        self.parameters.are_stale = True

    def synchronize_parameters(self) -> None:
        self.parameters.wait_all()
        self.replica.intra_replica.broadcast_frozen()


class EagerTransfer(EagerUpdate):
    """Sums a bucket, updates it and sends it, while backward waits. ``buckets``: those that are taken are left out of
    them."""

    def __init__(self, replica: Replica, buckets: Buckets, parameters: ParameterTransfer,
                 gradients: GradientTransfer) -> None:
        self._replica, self._buckets, self._parameters, self._gradients = replica, buckets, parameters, gradients

    @property
    def updates_alone(self) -> bool:
        return self._replica.communicator.n_ranks == 1

    def buckets(self) -> Sequence[Bucket]:
        """See EagerUpdate: in iterations of one pass, where ranks hold whole nets and none outlives another."""
        replica = self._replica
        if replica.iter_size > 1 or replica.intra_replica.acts or tolerates_rank_loss(replica.options):
            return ()
        return self._gradients.divisible(self._buckets)

    def take(self, buckets: Sequence[Bucket]) -> None:
        self._buckets.leave_out(buckets)

    def update_in_backward(self, bucket: Bucket, rate: float, iteration: int) -> None:
        replica = self._replica
        self._gradients.sum(bucket)
        with replica.timers("update"):
            replica.updater.update_ahead(bucket.place, rate, iteration, replica.communicator.n_ranks)
        self._parameters.send(bucket)
