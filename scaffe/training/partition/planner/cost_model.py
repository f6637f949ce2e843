"""The cost model: the bytes that a rank sends for a sharded layer, and the seconds it takes; pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log2

from scaffe.collectives.model.machine import Machine
from scaffe.training.partition import sharding as s
from scaffe.training.partition.planner.shapes import LayerShape

ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class Cost:
    """What one rank spends in an iteration.

    Attributes:
        n_bytes: that it sends.
        seconds: that it takes, nothing hidden behind anything.
    """

    n_bytes: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.n_bytes + other.n_bytes, self.seconds + other.seconds)


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job, on their nodes in order, and how fast they are.

    Attributes:
        n_partitions: the ranks of a replica, which have consecutive numbers; divides ``n_ranks``.
        ranks_per_node: ranks of a node; they share its network ports.
        update_bandwidth: bytes of parameters that a rank updates a second.
        copy_bandwidth: bytes that a rank packs a second.
    """

    n_ranks: int
    n_partitions: int
    n_images: float
    ranks_per_node: int
    machine: Machine
    multiply_adds_per_second: float
    update_bandwidth: float = inf
    copy_bandwidth: float = inf

    @property
    def n_replicas(self) -> int:
        """How many replicas there are."""
        return self.n_ranks // self.n_partitions

    def send(self, n_bytes: float, n_messages: int, span: int, is_summed: bool = False) -> Cost:
        """The cost of a rank's messages among ranks whose numbers span so many.

        Args:
            n_messages: that follow one another.
            span: consecutive ranks, from the first of a node on.
            is_summed: whether it adds what it receives, as much as it sends.
        """
        machine = self.machine
        within = span <= self.ranks_per_node
        latency = machine.intra_latency if within else machine.inter_latency
        shared = max(min(self.ranks_per_node, self.n_ranks) / machine.ports, 1)
        bandwidth = machine.intra_bandwidth if within else machine.inter_bandwidth / shared
        summing = n_bytes / machine.sum_bandwidth if is_summed else 0.0
        return Cost(n_bytes, n_messages * (latency + machine.overhead) + n_bytes / bandwidth + summing)

    def move(self, n_bytes: float, n_messages: int, span: int) -> Cost:
        """The cost of ``send``, of packing what is sent, and of unpacking what comes."""
        return self.send(n_bytes, n_messages, span) + Cost(0.0, 2 * n_bytes / self.copy_bandwidth)


def layer_cost(layer: LayerShape, kind: str, ranks: Ranks) -> Cost:
    """The cost of a layer, without its bottoms' redistributions."""
    cost = Cost(0.0, compute_seconds(layer, kind, ranks) + update_seconds(layer, kind, ranks))
    cost += gradient_sum_cost(layer, kind, ranks) + replica_sum_cost(layer, kind, ranks)
    for direction in range(1 + (kind == s.INPUTS or any(layer.wants_gradient))):
        cost += exchange_cost(layer, kind, ranks, bool(direction))
    return cost


def compute_seconds(layer: LayerShape, kind: str, ranks: Ranks) -> float:
    """Seconds of a layer's forward and backward on the rank that has the largest part."""
    of_image = layer.seconds or layer.multiply_adds / ranks.multiply_adds_per_second
    return of_image * ranks.n_images * ranks.n_partitions * _largest(layer, kind, ranks.n_partitions)


def update_seconds(layer: LayerShape, kind: str, ranks: Ranks) -> float:
    """Seconds of the update of a rank's parameters, of which each replica does its share."""
    return _own_bytes(layer, kind, ranks) / ranks.n_replicas / ranks.update_bandwidth


def gradient_sum_cost(layer: LayerShape, kind: str, ranks: Ranks) -> Cost:
    """The cost of summing a layer's gradients over a replica's ranks; none where each has its own part."""
    if s.sharding_of(layer.type, kind).splits_parameters:
        return Cost()
    return _all_reduce(layer.n_parameters * ITEM, ranks.n_partitions, ranks.n_partitions, ranks)


def replica_sum_cost(layer: LayerShape, kind: str, ranks: Ranks) -> Cost:
    """The cost of summing a layer's gradients over replicas, and of sending its parameters back."""
    return _all_reduce(_own_bytes(layer, kind, ranks), ranks.n_replicas, ranks.n_ranks, ranks)


def _own_bytes(layer: LayerShape, kind: str, ranks: Ranks) -> float:
    """Of a rank's parameters of a layer."""
    share = 1 / ranks.n_partitions if s.sharding_of(layer.type, kind).splits_parameters else 1
    return layer.n_parameters * ITEM * share


def exchange_cost(layer: LayerShape, kind: str, ranks: Ranks, is_backward: bool) -> Cost:
    """The cost of a layer's own messages in one direction: partial sums, halos, pieces, statistics."""
    k, cost = ranks.n_partitions, Cost()
    if k == 1:
        return cost
    if kind == s.INPUTS:  # partial sums are scattered, the gradient is gathered
        cost += ranks.send((k - 1) * ranks.n_images * layer.n_outputs * ITEM, _rounds(k), k, is_summed=not is_backward)
    if is_backward and not any(layer.wants_gradient):
        return cost
    if kind == s.CLASSES and not is_backward:  # the largest score, the sum, the score of the label
        cost += _all_reduce(3 * ranks.n_images * k * ITEM, k, k, ranks)
    if layer.type == "BatchNorm" and kind in (s.REPLICATED, s.BY_BANDS):  # statistics, and what their gradient needs
        cost += _all_reduce(2 * layer.n_parameters * ITEM, k, k, ranks)  # in float64
    share = layer.shares.get(kind)
    if share is not None and share.halo:  # to both neighbours; all of it goes at once
        cost += ranks.move(share.halo * ranks.n_images * k * ITEM, 1, k)
    if share is not None and share.index_map is not None:
        cost += ranks.move(share.index_map.sent(k) * ranks.n_images * k * ITEM, k - 1, k)
    return cost


def redistribution_cost(lies: str, needed: str, width: int, with_gradient: bool, ranks: Ranks) -> Cost:
    """A blob of ``width`` elements an image in another layout, and its gradient back."""
    k, times, cost = ranks.n_partitions, 1 + with_gradient, Cost()
    for step in s.redistribution_steps(lies, needed, s.ROWS) if k > 1 else ():
        elems = (k - 1) * ranks.n_images * width / (k if {s.WHOLE, s.ONE}.isdisjoint(step) else 1)
        cost += ranks.move(elems * ITEM * times, (_rounds(k) if s.WHOLE in step else k - 1) * times, k)
    return cost


def _rounds(n: int) -> int:
    """Of a gather or scattered sum of n ranks, by doubling or halving: messages of a rank that follow one another."""
    return ceil(log2(n))


def _largest(layer: LayerShape, kind: str, k: int) -> float:
    """The largest share of a layer that a rank has, of columns that k does not divide."""
    if kind == s.ONE_RANK:
        return 1.0
    n_columns = {s.OUTPUTS: layer.n_outputs, s.INPUTS: layer.widths[0] if layer.widths else 0}.get(kind, 0)
    if kind in layer.shares:
        n_columns = layer.shares[kind].length
    return ceil(n_columns / k) / n_columns if n_columns else 1 / k


def _all_reduce(n_bytes: float, n: int, span: int, ranks: Ranks) -> Cost:
    """A sum over n ranks that all of them have in the end: 2 (n - 1) / n of its bytes sent by each."""
    if n == 1 or not n_bytes:
        return Cost()
    half, n_rounds = (n - 1) / n * n_bytes, _rounds(n)
    return ranks.send(half, n_rounds, span, is_summed=True) + ranks.send(half, n_rounds, span)
