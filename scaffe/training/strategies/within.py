"""Gradients summed within a replica, before a strategy sums them over replicas: the interface, and a rank alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np


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

    def weighted(self, places: Sequence[slice]) -> Iterator[tuple[float, slice]]:
        """Intervals of the gradients, each with its weight in a sum over the ranks of the replica that is to count
        every gradient once."""
        yield from ((1.0, place) for place in places)

    def sum_of_squares(self, gradient: np.ndarray) -> float | None:
        """Of the replica's whole gradient, for clipping. Called by all its ranks.

        Args:
            gradient: this rank's, flat.

        Returns:
            the sum; None where the rank has the whole gradient.
        """
        return None


def squares(gradient: np.ndarray, weighted: Iterable[tuple[float, slice]]) -> float:
    """The sum of a flat gradient's squares over intervals with weights."""
    return sum(weight * float(np.dot(gradient[place], gradient[place])) for weight, place in weighted)
