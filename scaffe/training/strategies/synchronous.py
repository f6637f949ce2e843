"""Strategies of two transfer policies, one that sends parameters and one that sums gradients: S-Caffe's designs
(sections 4.1 to 4.3) SC-B, SC-OB, its naive form and SC-OBR; and SC-RS, which has no root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from scaffe.collectives.request import Request
from scaffe.flags import Flags
from scaffe.training.fault_tolerance.replacement import tolerates_rank_loss
from scaffe.training.strategies import bucketed
from scaffe.training.strategies.base import EagerUpdate, Strategy, strategies
from scaffe.training.strategies.fault_tolerance import SynchronousFaultTolerance
from scaffe.training.strategies.roles import Replica, Roles, squares
from scaffe.training.strategies.state_placement import OwnedBy, ReplicatedState, StatePlacement, on_root
from scaffe.training.strategies.transfers import (
    ROOT,
    Bucket,
    Buckets,
    GradientTransfer,
    ParameterTransfer,
    add_bucket_flag,
)


def add_wire_flag(flags: Flags) -> None:
    """Add ``-wire``."""
    flags.flag("wire", "", "the type in which gradients are sent", choices=("fp16", "bf16"))


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
        self._check()
        if tolerates_rank_loss(self.replica.options):  # what the device has not done yet may need a rank that is lost
            self.replica.communicator.wait_for_device()

    def apply(self, rate: float, iteration: int) -> None:
        replica = self.replica
        if replica.updater.everything:
            clips, diff = replica.updater.param.clip_gradients >= 0, replica.net.params.diff
            squares = replica.intra_replica.sum_of_squares(diff) if clips else None
            with replica.timers("update"):
                replica.updater.update(rate, iteration, replica.communicator.n_ranks, squares)
        self.parameters.are_stale = True

    def _check(self) -> None:
        """Look for overflows (fp16) in the sums that this rank updates by: every rank leaves its update out, or none
        does."""
        found = self.replica.updater.check(self._updated())
        if found is not None and self.replica.communicator.n_ranks > 1:
            self.replica.communicator.allreduce(found)

    def _updated(self) -> Sequence[slice]:
        """The intervals of the gradients that this rank updates by."""
        return self.buckets.runs if self.replica.updater.everything else ()

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


@strategies.register("sc-b")
class ScB(Composed):
    """One blocking broadcast before forward and one blocking reduction after backward (Awan et al., PPoPP'17, 4.1)."""

    roles = Roles(add_wire_flag, trains_parts=True)  # it has no buckets
    parameter_transfer, gradient_transfer = bucketed.Broadcast, bucketed.Reduction


@strategies.register("sc-ob")
class ScOb(Composed):
    """All buckets' non-blocking broadcasts are posted before forward. Each is waited for just before the first layer
    that needs it. Gradients are reduced whole after backward (Awan et al., PPoPP'17, 4.2)."""

    parameter_transfer, gradient_transfer = bucketed.Broadcasts, bucketed.Reduction


class NextBroadcasts(bucketed.Broadcasts):
    """While the layers of one bucket compute, only the next bucket is being broadcast."""

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        super().__init__(replica, buckets)
        self._left: list[Bucket] = []

    def post(self) -> None:
        if self.are_stale:
            self._left = list(self.buckets.together)
            self._post_next()
        self.are_stale = False

    def wait_for(self, layer_index: int) -> None:
        super().wait_for(layer_index)
        if layer_index in self.buckets.by_first_layer:
            self._post_next()

    def wait_all(self) -> None:
        self.post()
        while self._left:
            self._post_next()
        super().wait_all()

    def _post_next(self) -> None:
        if self._left:
            self._start(self._left.pop(0))


@strategies.register("sc-ob-naive")
class ScObNaive(Composed):
    """Layer i+1's broadcast is posted when layer i begins (Awan et al., PPoPP'17, 4.2).

    The paper rejects this variant: a layer that computes for a shorter time than the next layer's broadcast takes
    hides only part of it.
    """

    parameter_transfer, gradient_transfer = NextBroadcasts, bucketed.Reduction


@strategies.register("sc-obr")
class ScObr(Composed):
    """Broadcasts as in sc-ob; a helper thread reduces each bucket to the root as soon as backward has completed it
    (Awan et al., PPoPP'17, 4.3)."""

    parameter_transfer, gradient_transfer = bucketed.Broadcasts, bucketed.Reductions


class Gathers(bucketed.Broadcasts):
    """Allgathers each bucket's updated parameters: every rank sends the part that it owns."""

    kind = "gather"

    def wait_all(self) -> None:
        """See ParameterTransfer; if updates leave their steps in the diffs (``keeps_step``), those are gathered too."""
        super().wait_all()
        replica = self.replica
        for bucket in self.buckets.all if replica.updater.keeps_step else ():
            replica.communicator.allgather(replica.net.params.diff[bucket.place])

    def start_on(self, place: slice) -> Request:
        replica = self.replica
        return replica.communicator.iallgather(replica.net.params.data[place], replica.algorithm_for("allgather"))


class Scatters(bucketed.Reductions):
    """Reduce-scatters each bucket's gradients: every rank gets the sums of the part that it owns."""

    def start_on(self, place: slice) -> Request:
        replica = self.replica
        return replica.communicator.ireduce_scatter(replica.net.params.diff[place], "sum", self.algorithm)


def part_of(replica: Replica, bucket: Bucket, rank: int) -> slice:
    """A rank's part of a bucket, as an interval of the flat buffers."""
    part = replica.communicator.part(bucket.place.stop - bucket.place.start, rank)
    return slice(bucket.place.start + part.start, bucket.place.start + part.stop)


@strategies.register("sc-rs")
class ScRs(Composed):
    """Each bucket is reduce-scattered while backward continues, each rank updates its own part of the bucket, and the
    bucket is allgathered before the forward of the first layer that needs it. Each of P ranks does 1/P of the update
    and holds 1/P of the histories."""

    parameter_transfer, gradient_transfer = Gathers, Scatters
    collectives = ("allgather", "reduce_scatter")

    @staticmethod
    def ownership(replica: Replica, buckets: Buckets) -> OwnedBy:
        """See Composed: a rank owns its part of every bucket. The root also owns frozen parameters, since some rules
        change their histories."""
        return lambda rank: [*(part_of(replica, bucket, rank) for bucket in buckets.all),
                             *(buckets.frozen if rank == ROOT else ())]

    def gradients_ready(self) -> None:
        """See Composed; and sum the squares over all parts if gradients are clipped, so that ranks can update alone."""
        super().gradients_ready()
        replica = self.replica
        self._squares = self._sum_of_squares() if replica.updater.param.clip_gradients >= 0 else None

    def apply(self, rate: float, iteration: int) -> None:
        replica = self.replica
        with replica.timers("update"):
            replica.updater.update(rate, iteration, replica.communicator.n_ranks, self._squares)
        self.parameters.are_stale = True

    def _updated(self) -> Sequence[slice]:
        return [part_of(self.replica, bucket, self.replica.communicator.rank) for bucket in self.buckets.all]

    def _sum_of_squares(self) -> float:
        """The sum of squares of the whole gradient, from every rank's parts."""
        replica = self.replica
        total = np.array([squares(replica.net.params.diff, replica.intra_replica.weighted(self._updated()))])
        if replica.workers.n_ranks > 1:
            replica.workers.allreduce(total, "sum", "mpi")
        return float(total[0])
