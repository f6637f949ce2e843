"""A strategy composed of two parts: one sends parameters, one sums gradients."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from scaffe.flags import Flags
from scaffe.training.fault_tolerance.state_sources import tolerates_rank_loss
from scaffe.training.strategies.base import Strategy
from scaffe.training.strategies.buckets import Bucket
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.replicated_state import ReplicatedState
from scaffe.training.strategies.transfers import ROOT, Buckets, Gradients, Parameters


class Composed(Strategy):
    """Calls its two parts at the right points of the loop; the root updates. Subclasses name the parts.

    Attributes:
        parameters_kind, gradients_kind: the parts' classes. A rank alone uses the base classes, which do nothing.
        collectives: names of the collectives that the parts run on buckets.
    """

    parameters_kind: ClassVar[type[Parameters]]
    gradients_kind: ClassVar[type[Gradients]]
    collectives: ClassVar[tuple[str, ...]] = ("bcast", "reduce")
    tolerates_rank_loss = True
    trains_parts = True

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """See Strategy: adds ``-wire`` and the flags of both parts."""
        flags.flag("wire", "", "round gradients while they are sent", choices=("fp16", "bf16"))
        cls.parameters_kind.flags(flags)
        cls.gradients_kind.flags(flags)

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self.buckets = Buckets(replica, self.collectives)
        self.values, self.gradients = Parameters(), Gradients()
        if replica.communicator.n_ranks > 1:
            self.values = self.parameters_kind(replica, self.buckets)  # type: ignore[call-arg]
            self.gradients = self.gradients_kind(replica, self.buckets)  # type: ignore[call-arg]
        replica.updater.writes_copies = replica.communicator.n_ranks == 1  # else parameters come in messages
        self.copies = ReplicatedState(replica, self.owned_by, self.buckets.frozen)
        self.gradients.doubled = self.copies.algorithm

    @property
    def acts_between_layers(self) -> bool:
        """See Strategy."""
        return super().acts_between_layers or self.replica.intra_replica.acts

    def early(self) -> Sequence[Bucket]:
        """See Strategy: in iterations of one pass, where ranks hold whole nets and none goes on without another."""
        replica = self.replica
        if replica.iter_size > 1 or replica.intra_replica.acts or tolerates_rank_loss(replica.options):
            return ()
        return self.gradients.divisible(self.buckets)

    @property
    def updates_alone(self) -> bool:
        """See Strategy: one rank."""
        return self.replica.communicator.n_ranks == 1

    def take_eager(self, buckets: Sequence[Bucket]) -> None:
        """See Strategy."""
        self.buckets.leave_out(buckets)

    def update_in_backward(self, bucket: Bucket, rate: float, iteration: int) -> None:
        """See Strategy."""
        replica = self.replica
        self.gradients.sum(bucket)
        with replica.timers("update"):
            replica.updater.update_ahead(bucket.place, rate, iteration, replica.communicator.n_ranks)
        self.values.send(bucket)

    @property
    def hook_points(self) -> Collection[int]:
        """See Strategy."""
        return {*self.values.hook_points, *self.gradients.hook_points}

    def begin(self) -> None:
        """See Strategy."""
        self.values.begin()

    def owned(self) -> Sequence[slice]:
        """See Strategy."""
        return self.owned_by(self.replica.communicator.rank)

    def owned_by(self, rank: int) -> Sequence[slice]:
        """See Strategy: the root owns everything."""
        return [slice(0, self.replica.net.params.n_elems)] if rank == ROOT else []

    def copied(self) -> Sequence[slice]:
        """See Strategy: what the rank before owns (``-history-copies``)."""
        return self.copies.kept

    def before_iteration(self, rate: float, iteration: int) -> None:
        """Start to send the parameters if they are stale."""
        self.values.post()

    def before_forward(self, layer_index: int) -> None:
        """Wait for this layer's parameters."""
        self.values.wait_for(layer_index)

    def after_backward(self, layer_index: int) -> None:
        """In the last pass the layer's gradients are complete: start to sum them."""
        if self.is_last_pass:
            for index in self.replica.intra_replica.completed(layer_index):
                self.gradients.completed(index)

    def gradients_ready(self) -> None:
        """Wait for the sums, and give them to the ranks that keep copies."""
        for index in self.replica.intra_replica.finish():
            self.gradients.completed(index)
        self.gradients.finish()
        self.copies.exchange()

    def apply(self, rate: float, iteration: int) -> None:
        """Update on the root, and where a copy is kept; the other ranks' parameters are stale from here on."""
        replica = self.replica
        if replica.updater.everything:
            clips, diff = replica.updater.param.clip_gradients >= 0, replica.net.params.diff
            squares = replica.intra_replica.sum_of_squares(diff) if clips else None
            with replica.timers("update"):
                replica.updater.check(self.buckets.runs)
                replica.updater.update(rate, iteration, replica.communicator.n_ranks, squares)
        self.values.are_stale = True

    def settle(self) -> None:
        """See Strategy."""
        self.values.settle()
        self.replica.intra_replica.settle()
