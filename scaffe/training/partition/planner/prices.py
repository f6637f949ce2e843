"""What sharing a layer costs: bytes that a rank sends, and seconds on a machine; pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from scaffe.collectives.model.machine import Machine
from scaffe.training.partition.kinds import (
    BY_BANDS,
    CLASSES,
    INPUTS,
    ONE,
    ONE_RANK,
    OUTPUTS,
    REPLICATED,
    ROWS,
    WHOLE,
    steps_between,
    way_of,
)
from scaffe.training.partition.planner.shapes import LayerShape

ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class Price:
    """What one rank spends in an iteration.

    Attributes:
        n_bytes: that it sends.
        seconds: that it takes, nothing hidden behind anything.
    """

    n_bytes: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Price) -> Price:
        return Price(self.n_bytes + other.n_bytes, self.seconds + other.seconds)


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job, on their nodes in order, and how fast they are.

    Attributes:
        n_ranks: all of them.
        n_partitions: the ranks of a replica, which have consecutive numbers; divides ``n_ranks``.
        n_images: of one rank.
        ranks_per_node: ranks of a node; they share its network ports.
        machine: links and overheads.
        multiply_adds_per_second: of one rank.
    """

    n_ranks: int
    n_partitions: int
    n_images: float
    ranks_per_node: int
    machine: Machine
    multiply_adds_per_second: float

    @property
    def n_replicas(self) -> int:
        """How many replicas there are."""
        return self.n_ranks // self.n_partitions

    def send(self, n_bytes: float, n_messages: int, span: int) -> Price:
        """The price of messages of a rank among ranks whose numbers span so many.

        Args:
            n_bytes: of all its messages.
            n_messages: that follow one another.
            span: consecutive ranks, from the first of a node on.
        """
        machine = self.machine
        within = span <= self.ranks_per_node
        latency = machine.intra_latency if within else machine.inter_latency
        shared = max(min(self.ranks_per_node, self.n_ranks) / machine.ports, 1)
        bandwidth = machine.intra_bandwidth if within else machine.inter_bandwidth / shared
        return Price(n_bytes, n_messages * (latency + machine.overhead) + n_bytes / bandwidth)


def price_of_layer(layer: LayerShape, kind: str, ranks: Ranks) -> Price:
    """A layer's products, the sums inside of it, and its gradients' way; its bottoms' moves are not in it."""
    k = ranks.n_partitions
    price = Price(0.0, layer.multiply_adds * ranks.n_images * k * _largest(layer, kind, k)
                  / ranks.multiply_adds_per_second)
    is_split = way_of(layer.type, kind).splits_parameters
    n_bytes = layer.n_parameters * ITEM * (1 / k if is_split else 1)
    if not is_split:
        price += _all_reduce(n_bytes, k, k, ranks)
    price += _all_reduce(n_bytes, ranks.n_replicas, ranks.n_ranks, ranks)
    if kind == INPUTS:  # partial sums are scattered, the gradient is gathered
        moved = (k - 1) * ranks.n_images * layer.n_outputs * ITEM
        price += ranks.send(moved * 2, 2 * (k - 1), k)
    if kind == CLASSES:  # the largest score, the sum, the score of the label
        price += _all_reduce(3 * ranks.n_images * k * ITEM, k, k, ranks)
    if layer.type == "BatchNorm" and kind in (REPLICATED, BY_BANDS):  # statistics, and what their gradient needs
        times = 1 + any(layer.wants_gradient)
        for _ in range(times):
            price += _all_reduce(2 * layer.n_parameters * ITEM, k, k, ranks)  # in float64
    return price + _price_of_halo(layer, kind, ranks) + _price_of_joint(layer, kind, ranks)


def _price_of_halo(layer: LayerShape, kind: str, ranks: Ranks) -> Price:
    """Borders sent to both neighbours, and their gradients back; all of it goes at once in each direction."""
    halo = layer.shares[kind].halo if kind in layer.shares else 0
    if not halo or ranks.n_partitions == 1:
        return Price()
    times = 1 + any(layer.wants_gradient)
    return ranks.send(times * halo * ranks.n_images * ranks.n_partitions * ITEM, times, ranks.n_partitions)


def _price_of_joint(layer: LayerShape, kind: str, ranks: Ranks) -> Price:
    """Pieces of a Concat or Slice along the axis that is cut, and their gradients back."""
    joint = layer.shares[kind].joint if kind in layer.shares else None
    if joint is None or ranks.n_partitions == 1:
        return Price()
    k, times = ranks.n_partitions, 1 + any(layer.wants_gradient)
    return ranks.send(times * joint.sent(k) * ranks.n_images * k * ITEM, times * (k - 1), k)


def price_of_move(lies: str, needed: str, width: int, with_gradient: bool, ranks: Ranks) -> Price:
    """A blob of ``width`` elements an image brought from one way to lie into another, and its gradient back."""
    k, times, price = ranks.n_partitions, 1 + with_gradient, Price()
    for step in steps_between(lies, needed, ROWS) if k > 1 else ():
        elems = (k - 1) * ranks.n_images * width / (k if {WHOLE, ONE}.isdisjoint(step) else 1)
        price += ranks.send(elems * ITEM * times, (k - 1) * times, k)
    return price


def _largest(layer: LayerShape, kind: str, k: int) -> float:
    """The largest share of a layer that a rank has, of columns that k does not divide."""
    if kind == ONE_RANK:
        return 1.0
    n_columns = {OUTPUTS: layer.n_outputs, INPUTS: layer.widths[0] if layer.widths else 0}.get(kind, 0)
    if kind in layer.shares:
        n_columns = layer.shares[kind].length
    return ceil(n_columns / k) / n_columns if n_columns else 1 / k


def _all_reduce(n_bytes: float, n: int, span: int, ranks: Ranks) -> Price:
    """A sum over n ranks that all of them have in the end: 2 (n - 1) / n of its bytes sent by each."""
    if n == 1 or not n_bytes:
        return Price()
    return ranks.send(2 * (n - 1) / n * n_bytes, 2 * ceil(log2(n)), span)
