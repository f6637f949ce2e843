"""The numbers of a net's steps: forward of layer i is step i; then come those of backward, from the last layer on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Steps:
    """Of a net of n layers. Where none is divided or updated, backward of layer i is step 2n - 1 - i.

    Attributes:
        n_layers: n.
        divided: layers whose backward takes two steps: gradients of parameters, then those of the bottoms.
        n_updates: of layers behind whose backward something is updated: in how many steps.
        behind: of layers whose parameters' gradients come by blocks of rows, each in a step in which it is updated too:
            for each block the layer behind whose backward that is, itself or an earlier one, descending.
    """

    n_layers: int
    divided: frozenset[int] = frozenset()
    n_updates: Mapping[int, int] = field(default_factory=dict)
    behind: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def backward(self, layer: int) -> range:
        """The steps of a layer's backward: one, or two."""
        first = self._firsts[layer]
        return range(first, first + 1 + (layer in self.divided))

    def updates(self, layer: int) -> range:
        """The steps right behind a layer's backward in which something is updated, but for blocks of rows."""
        first = self.backward(layer).stop
        return range(first, first + self.n_updates.get(layer, 0))

    def rows(self, layer: int) -> tuple[int, ...]:
        """The steps in which a layer's blocks of rows are computed and updated; none if it has none."""
        return tuple(step for place in sorted({*self.behind.get(layer, ())}, reverse=True)
                     for step, (owner, _) in enumerate(self.blocks(place), self.updates(place).stop)
                     if owner == layer)

    def blocks(self, layer: int) -> list[tuple[int, int]]:
        """The blocks of rows that follow a layer's backward, in their order: whose they are, and which."""
        return [(owner, block) for owner in sorted(self.behind, reverse=True)
                for block, place in enumerate(self.behind[owner]) if place == layer]

    def writes_bottoms_alone(self, layer: int) -> bool:
        """Whether a layer's backward, or the last step of it, leaves gradients of parameters to others."""
        return layer in self.divided or layer in self.behind

    @property
    def n_steps(self) -> int:
        """Of forward and backward."""
        return self.n_layers + sum(map(self._length, range(self.n_layers)))

    def layer_of(self, step: int) -> int:
        """The layer that a step of backward, or what follows it, belongs to; below 0 beyond the last."""
        return next((layer for layer, first in enumerate(self._firsts)
                     if first <= step < first + self._length(layer)), -1)

    def _length(self, layer: int) -> int:
        return 1 + (layer in self.divided) + self.n_updates.get(layer, 0) + len(self.blocks(layer))

    @cached_property
    def _firsts(self) -> list[int]:
        """Of each layer, its first step of backward."""
        lengths = [self._length(layer) for layer in reversed(range(self.n_layers))]
        return [self.n_layers + ahead for ahead in accumulate(lengths[:-1], initial=0)][::-1] if lengths else []
