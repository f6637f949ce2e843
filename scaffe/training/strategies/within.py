"""Gradients summed within a replica, before a strategy sums them over replicas: the interface, and a rank alone."""

from __future__ import annotations

from collections.abc import Sequence


class Alone:
    """The sums of a replica on one rank: none. A layer's gradients are complete once its backward has run.

    Attributes:
        acts: whether it is to be called after layers.
    """

    acts = False

    def completed(self, layer_index: int) -> Sequence[int]:
        """Called when backward has computed a layer's gradients. Returns the layers whose sums are complete now."""
        return (layer_index,)

    def finish(self) -> Sequence[int]:
        """Wait for all sums. Returns the layers that no ``completed`` has returned, in backward's order."""
        return ()

    def settle(self) -> None:
        """Give all ranks of the replica what gradients never change (BatchNorm's statistics)."""
