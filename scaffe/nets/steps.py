"""The numbers of a net's steps: forward of layer i is step i; then come those of backward, from the last layer on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Steps:
    """Of a net of n layers. Where none is divided, backward of layer i is step 2n - 1 - i.

    Attributes:
        n_layers: n.
        divided: layers whose backward takes two steps: gradients of parameters, then those of the bottoms.
    """

    n_layers: int
    divided: frozenset[int] = frozenset()

    def backward(self, layer: int) -> range:
        """The steps of a layer's backward: one, or two."""
        last = 2 * self.n_layers - 1 - layer + sum(other >= layer for other in self.divided)
        return range(last - (layer in self.divided), last + 1)

    @property
    def n_steps(self) -> int:
        """Of forward and backward."""
        return 2 * self.n_layers + len(self.divided)

    def layer_of(self, step: int) -> int:
        """The layer whose backward a step is; below 0 beyond the last."""
        return next((layer for layer in range(self.n_layers) if step in self.backward(layer)), -1)
