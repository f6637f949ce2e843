"""Parameters and gradients sent whole, by blocking collectives."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.collectives.planning.algorithm import is_divisible
from scaffe.training.strategies.buckets import Bucket
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.transfers import ROOT, Buckets, GradientTransfer, ParameterTransfer


class Broadcast(ParameterTransfer):
    """Broadcasts the root's parameters to every rank before forward; nobody computes meanwhile (S-Caffe, 4.1).

    Args:
        replica: this rank's replica.
        buckets: which intervals change in every update. The frozen ones are sent only at ``begin`` and ``wait_all``.
    """

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        self.replica, self.buckets = replica, buckets

    def begin(self) -> None:
        """See ParameterTransfer; frozen parameters are sent too."""
        self._send(self.replica.net.params.places)

    def post(self) -> None:
        """See ParameterTransfer; the parameters have arrived when this returns."""
        if self.are_stale:
            self._send(self.buckets.runs)
        self.are_stale = False

    def wait_all(self) -> None:
        self.post()
        self._send(self.buckets.frozen)

    def send(self, bucket: Bucket) -> None:
        self._send([bucket.place])

    def _send(self, places: Sequence[slice]) -> None:
        replica = self.replica
        if not places:
            return
        with replica.timers("communication"):
            for place in places:
                replica.communicator.bcast(replica.net.params.data[place], ROOT, replica.algorithm_for("bcast"))


class Reduction(GradientTransfer):
    """Reduces the gradients to the root after backward, all at once.

    Args:
        replica: this rank's replica.
        buckets: which intervals have gradients that an update uses.
    """

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        self.replica, self.buckets = replica, buckets

    @property
    def algorithm(self) -> str:
        """That which sums."""
        return self.copying_algorithm or self.replica.sum_algorithm

    def finish(self) -> None:
        replica = self.replica
        with replica.timers("communication"):
            for place in self.buckets.runs:
                self._sum(place)

    def divisible(self, buckets: Buckets) -> Sequence[Bucket]:
        """See GradientTransfer: layers, if the algorithm sums them to the same bits one by one."""
        replica = self.replica
        return buckets.layers if is_divisible(replica.sum_algorithm, replica.communicator.n_ranks) else ()

    def sum(self, bucket: Bucket) -> None:
        with self.replica.timers("communication"):
            self._sum(bucket.place)

    def _sum(self, place: slice) -> None:
        replica = self.replica
        replica.communicator.reduce(replica.net.params.diff[place], ROOT, "sum", self.algorithm)
