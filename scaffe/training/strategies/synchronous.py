"""S-Caffe's designs (sections 4.1 to 4.3): SC-B, SC-OB, its naive form, SC-OBR; and SC-RS, which has no root."""

from __future__ import annotations

import numpy as np

from scaffe.collectives.request import Request
from scaffe.training.strategies import bucketed
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.composed import Composed, add_wire_flag
from scaffe.training.strategies.roles import Replica, Roles, squares
from scaffe.training.strategies.state_placement import OwnedBy
from scaffe.training.strategies.transfers import ROOT, Bucket, Buckets


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
        found = replica.updater.check([self._own(bucket) for bucket in self.buckets.all])
        if found is not None and replica.communicator.n_ranks > 1:
            replica.communicator.allreduce(found)  # every rank leaves its part out, or none does
        with replica.timers("update"):
            replica.updater.update(rate, iteration, replica.communicator.n_ranks, self._squares)
        self.parameters.are_stale = True

    def _own(self, bucket: Bucket) -> slice:
        return part_of(self.replica, bucket, self.replica.communicator.rank)

    def _sum_of_squares(self) -> float:
        """The sum of squares of the whole gradient, from every rank's parts."""
        replica = self.replica
        own = [self._own(bucket) for bucket in self.buckets.all]
        total = np.array([squares(replica.net.params.diff, replica.intra_replica.weighted(own))])
        if replica.workers.n_ranks > 1:
            replica.workers.allreduce(total, "sum", "mpi")
        return float(total[0])
