"""The planner: finds by dynamic programming the sharding of every layer that costs the least time.

Layers are taken in order. What has been decided matters for the rest only by how the blobs lie that are still to be
read, so of all plans that leave the same blobs lying the same way the best one is kept (the elimination of Jia et al.,
"Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, along the order of the layers).
It is exact for any net without circles; the number of states kept grows with the blobs that are open at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scaffe.training.partition.planner.cost_model import Cost, Ranks, layer_cost, redistribution_cost
from scaffe.training.partition.planner.shapes import LayerShape
from scaffe.training.partition.sharding import ONE, ONE_RANK, REPLICATED, ROWS, sharding_of

Open = tuple[tuple[str, str], ...]
"""The blobs that are still to be read, sorted, each with how it lies."""


@dataclass(frozen=True)
class Plan:
    """How the layers of a net are shared.

    Attributes:
        n_ranks, n_partitions: all ranks, and those of one replica.
        costs: layer name → what the layer costs, the moves of its bottoms included.
    """

    n_ranks: int
    n_partitions: int
    shardings: dict[str, str]
    costs: dict[str, Cost]

    @property
    def total(self) -> Cost:
        """Of an iteration."""
        return sum(self.costs.values(), Cost())

    @property
    def is_split(self) -> bool:
        """Whether any layer is not replicated."""
        return any(kind != REPLICATED for kind in self.shardings.values())


@dataclass(frozen=True, slots=True)
class _Partial:
    """A plan of the first layers: seconds so far, the last layer's kind and cost, and the plan of those before it."""

    seconds: float = 0.0
    kind: str = ""
    cost: Cost = Cost()
    before: _Partial | None = None

    def steps(self) -> list[tuple[str, Cost]]:
        """Each layer's kind and cost."""
        found, last = [], self
        while last.before is not None:
            found.append((last.kind, last.cost))
            last = last.before
        return found[::-1]


class _LayerSharding:
    """One sharding of a layer with its cost; redistributions of bottoms are costed once for each layout."""

    def __init__(self, layer: LayerShape, kind: str, ranks: Ranks) -> None:
        self.kind, self._layer, self._ranks = kind, layer, ranks
        self._way, self._layer_cost = sharding_of(layer.type, kind), layer_cost(layer, kind, ranks)
        self._costs: dict[tuple[str, ...], Cost] = {}
        self.tops = [(name, self._way.gives) for name in layer.tops]
        self._follows = kind == ONE_RANK and not (layer.n_parameters or layer.pinned)

    def cost(self, lie: tuple[str, ...]) -> Cost | None:
        """The cost for bottoms in these layouts, their redistributions included; None where it is impossible."""
        if self._follows and any(how != ONE for how in lie):
            return None  # without parameters nothing else brings a layer to one rank
        if lie not in self._costs:
            costs = (redistribution_cost(how, self._way.need(i), self._layer.widths[i], self._layer.wants_gradient[i],
                                   self._ranks) for i, how in enumerate(lie))
            self._costs[lie] = sum(costs, self._layer_cost)
        return self._costs[lie]


def best_plan(layers: Sequence[LayerShape], ranks: Ranks) -> Plan:
    """The fastest plan with so many partitions; of equal ones that with the earlier kinds of ``LayerShape.shardings``.
    Raises UserError if a layer is pinned to what it cannot do."""
    kept: dict[Open, _Partial] = {(): _Partial()}
    for layer in layers:
        reached: dict[Open, _Partial] = {}
        ways = [_LayerSharding(layer, kind, ranks) for kind in layer.allowed(ranks.n_partitions)]
        for state, partial in kept.items():
            for kind, after, cost in _steps(layer, state, ways):
                seconds = partial.seconds + cost.seconds
                if after not in reached or seconds < reached[after].seconds:
                    reached[after] = _Partial(seconds, kind, cost, partial)
        kept = reached
    steps = min(kept.values(), key=lambda partial: partial.seconds).steps()
    named = list(zip((layer.name for layer in layers), steps, strict=True))
    return Plan(ranks.n_ranks, ranks.n_partitions, {name: kind for name, (kind, _) in named},
                {name: cost for name, (_, cost) in named})


def _steps(layer: LayerShape, state: Open, ways: Sequence[_LayerSharding]) -> Iterator[tuple[str, Open, Cost]]:
    """The shardings of a layer: each with the blobs that are open afterwards, and its cost."""
    lying = dict(state)
    lie = tuple(lying.pop(name, ROWS) for name in layer.bottoms)
    left = list(lying.items())
    for way in ways:
        cost = way.cost(lie)
        if cost is not None:
            yield way.kind, tuple(sorted([*left, *way.tops])), cost
