"""The planner: the way to share every layer that makes an iteration's predicted time least, by dynamic programming.

Layers are taken in order. What has been decided matters for the rest only by how the blobs lie that are still to be
read, so of all plans that leave the same blobs lying the same way the best one is kept (the elimination of Jia et al.,
"Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, along the order of the layers).
It is exact for any net without circles; the number of states kept grows with the blobs that are open at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from scaffe.errors import UserError
from scaffe.training.partition.kinds import ONE, ONE_RANK, REPLICATED, ROWS, way_of
from scaffe.training.partition.prices import Price, Ranks, price_of_layer, price_of_move
from scaffe.training.partition.shapes import LayerShape

Open = tuple[tuple[str, str], ...]
"""The blobs that are still to be read, sorted, each with how it lies."""


@dataclass(frozen=True)
class Plan:
    """How the layers of a net are shared.

    Attributes:
        n_ranks, n_partitions: all ranks, and those of one replica.
        kinds: layer name → kind.
        prices: layer name → what the layer costs, the moves of its bottoms included.
    """

    n_ranks: int
    n_partitions: int
    kinds: dict[str, str]
    prices: dict[str, Price]

    @property
    def total(self) -> Price:
        """Of an iteration."""
        return sum(self.prices.values(), Price())

    @property
    def is_split(self) -> bool:
        """Whether any layer is not replicated."""
        return any(kind != REPLICATED for kind in self.kinds.values())


@dataclass(frozen=True)
class _Partial:
    """A plan of the first layers: seconds so far, and each layer's kind and price."""

    seconds: float = 0.0
    steps: tuple[tuple[str, Price], ...] = ()


def best_plan(layers: Sequence[LayerShape], ranks: Ranks) -> Plan:
    """The fastest plan with so many partitions; of equal ones that with the earlier kinds of ``LayerShape.kinds``.

    Raises:
        UserError: a layer is pinned to what it cannot do.
    """
    kept: dict[Open, _Partial] = {(): _Partial()}
    for layer in layers:
        reached: dict[Open, _Partial] = {}
        for state, partial in kept.items():
            for kind, after, price in _steps(layer, state, ranks):
                seconds = partial.seconds + price.seconds
                if after not in reached or seconds < reached[after].seconds:
                    reached[after] = _Partial(seconds, (*partial.steps, (kind, price)))
        kept = reached
    steps = min(kept.values(), key=lambda partial: partial.seconds).steps
    named = list(zip((layer.name for layer in layers), steps, strict=True))
    return Plan(ranks.n_ranks, ranks.n_partitions, {name: kind for name, (kind, _) in named},
                {name: price for name, (_, price) in named})


def best_of_all(layers: Sequence[LayerShape], ranks: Ranks) -> Plan:
    """The fastest plan with any number of partitions that divides the ranks; data parallelism where that is fastest.

    Raises:
        UserError: a layer is pinned to what it cannot do, or to a number that does not divide the ranks.
    """
    counts = [k for k in range(1, ranks.n_ranks + 1) if ranks.n_ranks % k == 0]
    pinned = {layer.pinned_partitions for layer in layers} - {0}
    fitting = [k for k in counts if not pinned or k in pinned]
    if not fitting:
        raise UserError(f"parallel_param wants {min(pinned)} partitions, which do not divide {ranks.n_ranks} ranks")
    plans = [best_plan(layers, replace(ranks, n_partitions=k)) for k in fitting]
    return min(plans, key=lambda plan: plan.total.seconds)


def _steps(layer: LayerShape, state: Open, ranks: Ranks) -> Iterator[tuple[str, Open, Price]]:
    """The ways to share a layer: each with what lies open afterwards, and its price."""
    lying = dict(state)
    for kind in layer.allowed(ranks.n_partitions):
        if kind == ONE_RANK and not (layer.n_parameters or layer.pinned) and not _lie_there(layer, lying):
            continue
        way, left = way_of(layer.type, kind), dict(lying)
        price = price_of_layer(layer, kind, ranks)
        for i, name in enumerate(layer.bottoms):
            price += price_of_move(left.pop(name, ROWS), way.need(i), layer.widths[i], layer.wants_gradient[i], ranks)
        left.update(dict.fromkeys(layer.tops, way.gives))
        yield kind, tuple(sorted(left.items())), price


def _lie_there(layer: LayerShape, lying: dict[str, str]) -> bool:
    """Whether all bottoms lie on one rank: without parameters nothing else brings a layer there."""
    return all(lying.get(name) == ONE for name in layer.bottoms)
