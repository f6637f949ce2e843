"""What the overlapping strategies are made of: requests a bucket, posted at once and waited for one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from collectives.request import Request
from scaffe.buckets import Bucket, plan_buckets, travelling
from scaffe.strategies.base import Replica

DEFAULT_BUCKET_BYTES = 4 << 20


class Buckets:
    """A replica's buckets, and which layer begins or completes which."""

    def __init__(self, replica: Replica) -> None:
        params = replica.net.params
        moving, self.still = travelling(params)
        wanted = getattr(replica.options, "bucket", None)
        max_bytes = DEFAULT_BUCKET_BYTES if wanted in (None, "auto") else int(wanted)
        self.all = plan_buckets(moving, params.dtype.itemsize, max_bytes)
        self.by_first_layer: dict[int, Bucket] = {b.first_layer: b for b in self.all}


class Pending:
    """Requests under way, by bucket.

    Args:
        replica: whose timers count the waiting.
        kind: what a timeline calls them.
    """

    def __init__(self, replica: Replica, kind: str) -> None:
        self._replica, self._kind = replica, kind
        self._requests: dict[int, Request] = {}  # by the bucket's first layer

    def post(self, bucket: Bucket, start: Callable[..., Request], array: np.ndarray, *args: Any) -> None:
        """Start a collective on the bucket's part of a flat buffer."""
        self._requests[bucket.first_layer] = start(array[bucket.place], *args)

    def wait(self, bucket: Bucket) -> None:
        """Wait for the bucket's request, if it has one."""
        self._wait(bucket.first_layer)

    def wait_all(self) -> None:
        """Wait for all that are left, in the order posted."""
        for first_layer in list(self._requests):
            self._wait(first_layer)

    def _wait(self, first_layer: int) -> None:
        request = self._requests.pop(first_layer, None)
        if request is None:
            return
        timers, waited = self._replica.timers, 0.0
        label = f"{self._kind} {self._replica.net.nodes[first_layer].name}"
        if not request.test():
            started = time.perf_counter()
            with timers("communication", f"wait {label}"):
                request.wait()
            waited = time.perf_counter() - started
        timers.carried(label, request.started or request.ended, request.ended, waited)


class Broadcasts:
    """The root's parameters on their way to every rank, bucket by bucket (S-Caffe, 4.2)."""

    def __init__(self, replica: Replica, buckets: Buckets, root: int) -> None:
        self._replica, self._buckets, self._root = replica, buckets, root
        self._pending = Pending(replica, "broadcast")
        self.are_stale = False

    def begin(self) -> None:
        """Every rank begins with the root's parameters, initial or restored, frozen ones too."""
        replica = self._replica
        if replica.communicator.n_ranks > 1:
            replica.communicator.bcast(replica.net.params.data, self._root, replica.algorithm)

    def post_all(self) -> None:
        """Post every bucket's broadcast, in the order that forward needs them, if parameters have changed."""
        replica = self._replica
        if self.are_stale and replica.communicator.n_ranks > 1:
            for bucket in self._buckets.all:
                self._pending.post(bucket, replica.communicator.ibcast, replica.net.params.data, self._root,
                                   replica.algorithm)
        self.are_stale = False

    def wait_for(self, layer_index: int) -> None:
        """Wait for the bucket that a layer begins."""
        bucket = self._buckets.by_first_layer.get(layer_index)
        if bucket is not None:
            self._pending.wait(bucket)

    def settle(self) -> None:
        """Every parameter, those that gradients never change too, on every rank."""
        self.post_all()
        self._pending.wait_all()
        replica = self._replica
        if replica.communicator.n_ranks > 1:
            with replica.timers("communication"):
                for place in self._buckets.still:
                    replica.communicator.bcast(replica.net.params.data[place], self._root, replica.algorithm)
