"""The planner: the way to share every layer that makes an iteration's predicted time least, by dynamic programming.

Layers are taken in order. What has been decided matters for the rest only by how the blobs lie that are still to be
read, so of all plans that leave the same blobs lying the same way the best one is kept (the elimination of Jia et al.,
"Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, along the order of the layers).
It is exact for any net without circles; the number of states kept grows with the blobs that are open at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaffe.training.partition.planner.cost_model import Price, Ranks, price_of_layer, price_of_move
from scaffe.training.partition.planner.shapes import LayerShape
from scaffe.training.partition.sharding import ONE, ONE_RANK, REPLICATED, ROWS, way_of

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


@dataclass(frozen=True, slots=True)
class _Partial:
    """A plan of the first layers: seconds so far, the last layer's kind and price, and the plan of those before it."""

    seconds: float = 0.0
    kind: str = ""
    price: Price = Price()
    before: _Partial | None = None

    def steps(self) -> list[tuple[str, Price]]:
        """Each layer's kind and price."""
        found, last = [], self
        while last.before is not None:
            found.append((last.kind, last.price))
            last = last.before
        return found[::-1]


class _Way:
    """One way to share a layer, with what it costs; moves of bottoms are priced once for each way to lie."""

    def __init__(self, layer: LayerShape, kind: str, ranks: Ranks) -> None:
        self.kind, self._layer, self._ranks = kind, layer, ranks
        self._way, self._price = way_of(layer.type, kind), price_of_layer(layer, kind, ranks)
        self._moves: dict[tuple[str, ...], Price] = {}
        self.tops = [(name, self._way.gives) for name in layer.tops]
        self._follows = kind == ONE_RANK and not (layer.n_parameters or layer.pinned)

    def price(self, lie: tuple[str, ...]) -> Price | None:
        """What it costs where the bottoms lie so, their moves included; None where it is not to be had."""
        if self._follows and any(how != ONE for how in lie):
            return None  # without parameters nothing else brings a layer to one rank
        if lie not in self._moves:
            moves = (price_of_move(how, self._way.need(i), self._layer.widths[i], self._layer.wants_gradient[i],
                                   self._ranks) for i, how in enumerate(lie))
            self._moves[lie] = sum(moves, self._price)
        return self._moves[lie]


def best_plan(layers: Sequence[LayerShape], ranks: Ranks) -> Plan:
    """The fastest plan with so many partitions; of equal ones that with the earlier kinds of ``LayerShape.kinds``.

    Raises:
        UserError: a layer is pinned to what it cannot do.
    """
    kept: dict[Open, _Partial] = {(): _Partial()}
    for layer in layers:
        reached: dict[Open, _Partial] = {}
        ways = [_Way(layer, kind, ranks) for kind in layer.allowed(ranks.n_partitions)]
        for state, partial in kept.items():
            for kind, after, price in _steps(layer, state, ways):
                seconds = partial.seconds + price.seconds
                if after not in reached or seconds < reached[after].seconds:
                    reached[after] = _Partial(seconds, kind, price, partial)
        kept = reached
    steps = min(kept.values(), key=lambda partial: partial.seconds).steps()
    named = list(zip((layer.name for layer in layers), steps, strict=True))
    return Plan(ranks.n_ranks, ranks.n_partitions, {name: kind for name, (kind, _) in named},
                {name: price for name, (_, price) in named})


def _steps(layer: LayerShape, state: Open, ways: Sequence[_Way]) -> Iterator[tuple[str, Open, Price]]:
    """The ways to share a layer: each with what lies open afterwards, and its price."""
    lying = dict(state)
    lie = tuple(lying.pop(name, ROWS) for name in layer.bottoms)
    left = list(lying.items())
    for way in ways:
        price = way.price(lie)
        if price is not None:
            yield way.kind, tuple(sorted([*left, *way.tops])), price
