"""Intra-replica reduction: sums gradients of replicated parameters over a replica's ranks, during backward."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.request import Request
from scaffe.nets.net import Net
from scaffe.training.strategies.roles import IntraReplica, squares
from scaffe.training.strategies.transfers import Bucket, auto_bucket_bytes, plan_buckets, trainable_intervals


class IntraReplicaSums(IntraReplica):
    """Sums over a replica's ranks, bucket by bucket, on the helper thread.

    A bucket's layers are handed on when the next bucket is started, so that all ranks do so in the same order.
    """

    acts = True

    def __init__(self, net: Net, communicator: Communicator, timers: Any) -> None:
        self._net, self._params, self._communicator, self._timers = net, net.params, communicator, timers
        trainable, frozen = trainable_intervals(net.params)
        layers, self._split = _split_parameters(net)
        runs, n_bytes = _runs(trainable, layers, self._split), net.params.dtype.itemsize
        most = auto_bucket_bytes([communicator.algorithms.bandwidth_bytes("allreduce", net.params.data)])
        buckets = [bucket for run in runs for bucket in plan_buckets(run, n_bytes, most)]
        self._by_first_layer: dict[int, list[Bucket]] = {}
        for bucket in buckets:
            self._by_first_layer.setdefault(bucket.first_layer, []).append(bucket)
        self._frozen = [place for _, place in _without([(0, place) for place in frozen], self._split)]
        self._pending: list[tuple[str, Request]] = []
        self._held: list[int] = []
        self._started: list[int] = []

    def completed(self, layer_index: int) -> Sequence[int]:
        self._held.append(layer_index)
        buckets = self._by_first_layer.get(layer_index)
        if not buckets:
            return ()
        ready = self._wait()
        diff = self._params.diff
        name = f"sum {self._net.nodes[layer_index].name}"
        self._pending = [(name, self._communicator.iallreduce(diff[bucket.place])) for bucket in buckets]
        self._started, self._held = self._held, []
        return ready

    def finish(self) -> Sequence[int]:
        ready = [*self._wait(), *self._held]
        self._held = []
        return ready

    def broadcast_frozen(self) -> None:
        for place in self._frozen:
            self._communicator.bcast(self._params.data[place], 0)

    def weighted(self, places: Sequence[slice]) -> Iterator[tuple[float, slice]]:
        """See IntraReplica: what is not split is on every rank."""
        for place in places:
            common = [part for _, part in _without([(0, place)], self._split)]
            yield from ((1 / self._communicator.n_ranks, part) for part in common)
            yield from ((1.0, part) for _, part in _without([(0, place)], common))

    def sum_of_squares(self, gradient: np.ndarray) -> float | None:
        total = np.array([squares(gradient, self.weighted([slice(0, gradient.size)]))])
        self._communicator.allreduce(total, "sum", "mpi")
        return float(total[0])

    def _wait(self) -> list[int]:
        """Wait for the bucket that was started last. Returns the layers up to it."""
        for label, request in self._pending:
            self._timers.wait(request, label)
        ready, self._pending, self._started = self._started, [], []
        return ready


def _split_parameters(net: Net) -> tuple[set[int], list[slice]]:
    """Parameters of which the rank has a part alone: their layers, and their intervals, padding included."""
    layers, found, starts = set(), [], [place.start for place in net.params.slices]
    for param, start, end in zip(net.params.params, starts, [*starts[1:], net.params.n_elems], strict=True):
        node = net.nodes[param.layer_index]
        number = next(i for i, blob in enumerate(node.layer.blobs) if blob is param.blob)
        if net.parts is not None and net.parts.portion(node.name, number) is not None:
            layers.add(param.layer_index)
            found.append(slice(start, end))
    return layers, found


def _runs(places: Sequence[tuple[int, slice]], layers: Collection[int],
          holes: Sequence[slice]) -> list[list[tuple[int, slice]]]:
    """Intervals less the holes in them, in runs that begin where a layer has holes: on every rank, also where the holes
    are of no length, since the layer is on another."""
    runs: list[list[tuple[int, slice]]] = [[]]
    for layer, place in places:
        if layer in layers:
            runs.append([])
        runs[-1] += _without([(layer, place)], holes)
    return runs


def _without(places: Sequence[tuple[int, slice]], holes: Sequence[slice]) -> list[tuple[int, slice]]:
    """Intervals less the holes in them; both ascending."""
    found = []
    for layer, place in places:
        start = place.start
        for hole in holes:
            if start < hole.stop and hole.start < place.stop:
                found.append((layer, slice(start, hole.start)))
                start = hole.stop
        found.append((layer, slice(start, place.stop)))
    return [(layer, place) for layer, place in found if place.start < place.stop]
