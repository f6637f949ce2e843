"""Parameters and gradients sent whole, by blocking collectives, or bucket by bucket, by a thread, meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.collectives.planning.algorithm import is_divisible
from scaffe.collectives.request import Request
from scaffe.training.strategies.roles import Replica
from scaffe.training.strategies.transfers import ROOT, Bucket, Buckets, GradientTransfer, ParameterTransfer


class Broadcast(ParameterTransfer):
    """Broadcasts the root's parameters to every rank before forward; nobody computes meanwhile (S-Caffe, 4.1).
    ``buckets``: which intervals change in every update. The frozen ones are sent only at ``begin`` and ``wait_all``."""

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        self.replica, self.buckets = replica, buckets

    def begin(self) -> None:
        self._send(self.replica.net.params.places)

    def post(self) -> None:
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
    """Reduces the gradients to the root after backward, all at once."""

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        self.replica, self.buckets = replica, buckets

    def finish(self) -> None:
        replica = self.replica
        with replica.timers("communication"):
            for place in self.buckets.runs:
                self._sum(place)

    def divisible(self, buckets: Buckets) -> Sequence[Bucket]:
        replica = self.replica
        return buckets.layers if is_divisible(replica.sum_algorithm, replica.communicator.n_ranks) else ()

    def sum(self, bucket: Bucket) -> None:
        with self.replica.timers("communication"):
            self._sum(bucket.place)

    def _sum(self, place: slice) -> None:
        replica = self.replica
        replica.communicator.reduce(replica.net.params.diff[place], ROOT, "sum", self.algorithm)


class Pending(dict[int, Request]):
    """The requests under way, at most one per bucket, by its first layer. Waiting counts in the replica's timers.
    ``kind``: the requests' name in a timeline ("broadcast")."""

    def __init__(self, replica: Replica, kind: str) -> None:
        super().__init__()
        self._replica, self._kind = replica, kind

    def wait(self, first_layer: int) -> None:
        request = self.pop(first_layer, None)
        if request is not None:
            self._replica.timers.wait(request, f"{self._kind} {self._replica.net.nodes[first_layer].name}")

    def wait_all(self) -> None:
        """Wait for all remaining requests, in the order they were added."""
        for first_layer in list(self):
            self.wait(first_layer)


class Broadcasts(Broadcast):
    """Posts all buckets' broadcasts at once, and waits for each just before the first layer that needs it (S-Caffe,
    4.2)."""

    kind = "broadcast"

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        super().__init__(replica, buckets)
        self._pending = Pending(replica, self.kind)
        self.hook_points = buckets.by_first_layer.keys()

    def post(self) -> None:
        if self.are_stale:
            for bucket in self.buckets.together:
                self._start(bucket)
        self.are_stale = False

    def wait_for(self, layer_index: int) -> None:
        self._pending.wait(layer_index)

    def wait_all(self) -> None:
        self.post()
        self._pending.wait_all()
        self._send(self.buckets.frozen)

    def send(self, bucket: Bucket) -> None:
        self._start(bucket)
        self._pending.wait(bucket.first_layer)

    def _start(self, bucket: Bucket) -> None:
        self._pending[bucket.first_layer] = self.start_on(bucket.place)

    def start_on(self, place: slice) -> Request:
        replica = self.replica
        return replica.communicator.ibcast(replica.net.params.data[place], ROOT, replica.algorithm_for("bcast"))


class Reductions(Reduction):
    """Reduces each bucket to the root as soon as backward has completed it, while backward continues (S-Caffe, 4.3)."""

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        super().__init__(replica, buckets)
        self._pending = Pending(replica, "reduce")
        self.hook_points = buckets.by_first_layer.keys()

    def completed(self, layer_index: int) -> None:
        """If a bucket begins with this layer, its gradients are complete now: hand it to the helper thread."""
        bucket = self.buckets.by_first_layer.get(layer_index)
        if bucket is not None:
            self._pending[layer_index] = self.start_on(bucket.place)

    def finish(self) -> None:
        self._pending.wait_all()

    def divisible(self, buckets: Buckets) -> Sequence[Bucket]:
        return buckets.all

    def sum(self, bucket: Bucket) -> None:
        self._pending[bucket.first_layer] = self.start_on(bucket.place)
        self._pending.wait(bucket.first_layer)

    def start_on(self, place: slice) -> Request:
        replica = self.replica
        return replica.communicator.ireduce(replica.net.params.diff[place], ROOT, "sum", self.algorithm)
