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
        by_rows: layers whose parameters' gradients are computed behind backward, each block of rows in the step of its
            update.
        n_updates: of layers behind whose backward something is updated: in how many steps.
    """

    n_layers: int
    divided: frozenset[int] = frozenset()
    by_rows: frozenset[int] = frozenset()
    n_updates: Mapping[int, int] = field(default_factory=dict)

    def backward(self, layer: int) -> range:
        """The steps of a layer's backward: one, or two."""
        first = self._firsts[layer]
        return range(first, first + 1 + (layer in self.divided))

    def updates(self, layer: int) -> range:
        """The steps behind a layer's backward in which something is updated."""
        first = self.backward(layer).stop
        return range(first, first + self.n_updates.get(layer, 0))

    def rows(self, layer: int) -> range:
        """The steps in which gradients of blocks of rows are computed: the updates but the last, or none."""
        return self.updates(layer)[:-1] if layer in self.by_rows else range(0)

    def writes_bottoms_alone(self, layer: int) -> bool:
        """Whether a layer's backward, or the last step of it, leaves gradients of parameters to others."""
        return layer in self.divided or layer in self.by_rows

    @property
    def n_steps(self) -> int:
        """Of forward and backward."""
        return self.n_layers + sum(map(self._length, range(self.n_layers)))

    def layer_of(self, step: int) -> int:
        """The layer that a step of backward, or an update behind it, belongs to; below 0 beyond the last."""
        return next((layer for layer, first in enumerate(self._firsts)
                     if first <= step < first + self._length(layer)), -1)

    def _length(self, layer: int) -> int:
        return 1 + (layer in self.divided) + self.n_updates.get(layer, 0)

    @cached_property
    def _firsts(self) -> list[int]:
        """Of each layer, its first step of backward."""
        lengths = [self._length(layer) for layer in reversed(range(self.n_layers))]
        return [self.n_layers + ahead for ahead in accumulate(lengths[:-1], initial=0)][::-1] if lengths else []
