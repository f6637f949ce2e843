"""Numbers the steps of a net: forward of layer i is step i; backward's steps follow, from the last layer on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Steps:
    """The steps of a net of n layers. If no layer is divided or updated, backward of layer i is step 2n - 1 - i.

    Attributes:
        divided: layers whose backward takes two steps: gradients of parameters, then those of the bottoms.
        n_updates: by layer, the number of update steps that follow its backward.
        behind: by layer whose parameters' gradients are computed in blocks of rows, each in a step that updates it too:
            for each block, the layer whose backward that step follows, itself or an earlier one, descending.
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
        first = self.backward(layer).stop
        return range(first, first + self.n_updates.get(layer, 0))

    def rows(self, layer: int) -> tuple[int, ...]:
        """The steps in which a layer's blocks of rows are computed and updated; empty if it has none."""
        return tuple(step for place in sorted({*self.behind.get(layer, ())}, reverse=True)
                     for step, (owner, _) in enumerate(self.blocks(place), self.updates(place).stop)
                     if owner == layer)

    def blocks(self, layer: int) -> list[tuple[int, int]]:
        return [(owner, block) for owner in sorted(self.behind, reverse=True)
                for block, place in enumerate(self.behind[owner]) if place == layer]

    @property
    def n_steps(self) -> int:
        return self.n_layers + sum(map(self._length, range(self.n_layers)))

    def layer_of(self, step: int) -> int:
        """The layer to which a step of backward, or an update after it, belongs; below 0 beyond the last step."""
        return next((layer for layer, first in enumerate(self._firsts)
                     if first <= step < first + self._length(layer)), -1)

    def _length(self, layer: int) -> int:
        return 1 + (layer in self.divided) + self.n_updates.get(layer, 0) + len(self.blocks(layer))

    @cached_property
    def _firsts(self) -> list[int]:
        lengths = [self._length(layer) for layer in reversed(range(self.n_layers))]
        return [self.n_layers + ahead for ahead in accumulate(lengths[:-1], initial=0)][::-1] if lengths else []
