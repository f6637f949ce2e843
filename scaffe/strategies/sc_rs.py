"""sc-rs: no root; every rank updates its own part of each bucket."""

from __future__ import annotations

import numpy as np

from scaffe.buckets import Bucket
from scaffe.strategies.base import Replica, Strategy, strategies
from scaffe.strategies.bucketed import Buckets, Pending

ROOT = 0


@strategies.register("sc-rs")
class ScRs(Strategy):
    """Buckets are reduce-scattered while backward goes on, each rank updates its part of them, and they are gathered
    before the forward of the first layer that needs them: 1/P of the update's work and of the histories a rank."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._buckets = Buckets(replica)
        self._reductions, self._gathers = Pending(replica, "reduce"), Pending(replica, "gather")
        self._is_stale = False

    def begin(self) -> None:
        """The root's initial or restored parameters and histories go to all."""
        communicator = self.replica.communicator
        if communicator.n_ranks > 1:
            for array in (self.replica.net.params.data, *self.replica.updater.histories):
                communicator.bcast(array, ROOT)

    def before_iteration(self) -> None:
        """Post the gathers, in the order that forward needs them."""
        replica = self.replica
        if self._is_stale and replica.communicator.n_ranks > 1:
            for bucket in self._buckets.all:
                self._gathers.post(bucket, replica.communicator.iallgather, replica.net.params.data, replica.algorithm)
        self._is_stale = False

    def before_forward(self, layer_index: int) -> None:
        """Wait for what this layer needs."""
        bucket = self._buckets.by_first_layer.get(layer_index)
        if bucket is not None:
            self._gathers.wait(bucket)

    def after_backward(self, layer_index: int) -> None:
        """Hand a bucket that is complete to the helper thread."""
        replica = self.replica
        bucket = self._buckets.by_first_layer.get(layer_index)
        if bucket is not None and self.is_last_pass and replica.communicator.n_ranks > 1:
            self._reductions.post(bucket, replica.communicator.ireduce_scatter, replica.net.params.diff, "sum",
                                  replica.algorithm)

    def gradients_ready(self) -> None:
        """Wait for the last reductions."""
        self._reductions.wait_all()

    def apply(self, rate: float, iteration: int) -> None:
        """Update this rank's parts."""
        replica = self.replica
        squares = self._sum_of_squares() if replica.updater.param.clip_gradients >= 0 else None
        with replica.timers("update"):
            for bucket in self._buckets.all:
                replica.updater.update(rate, iteration, replica.communicator.n_ranks, self._own(bucket), squares)
        self._is_stale = True

    def settle(self) -> None:
        """See Strategy."""
        self.before_iteration()
        self._gathers.wait_all()
        communicator = self.replica.communicator
        if communicator.n_ranks > 1:
            for place in self._buckets.still:
                communicator.bcast(self.replica.net.params.data[place], ROOT)

    def histories(self) -> list[np.ndarray]:
        """Gathered from the ranks."""
        communicator = self.replica.communicator
        if communicator.n_ranks == 1:
            return self.replica.updater.histories
        whole = [history.copy() for history in self.replica.updater.histories]
        for history in whole:
            for bucket in self._buckets.all:
                communicator.allgather(history[bucket.place])
        return whole

    def _own(self, bucket: Bucket) -> slice:
        """This rank's part of a bucket, as an interval of the flat buffers."""
        part = self.replica.communicator.part(bucket.place.stop - bucket.place.start)
        return slice(bucket.place.start + part.start, bucket.place.start + part.stop)

    def _sum_of_squares(self) -> float:
        """Of the whole summed gradient, from every rank's parts."""
        diff = self.replica.net.params.diff
        total = np.array([sum(float(np.dot(diff[o], diff[o])) for o in map(self._own, self._buckets.all))])
        if self.replica.communicator.n_ranks > 1:
            self.replica.communicator.allreduce(total, "sum", "mpi")
        return float(total[0])
