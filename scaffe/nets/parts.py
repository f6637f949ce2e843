"""What a net asks where ranks share its layers: which part of a parameter is here, and the whole net's messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import Layer


@dataclass(frozen=True)
class Portion:
    """The part of one parameter that a rank has.

    Attributes:
        index: where the part lies in it, one slice an axis.
        on_single_rank: whether the part is all of it on the replica's first rank, and nothing on the others.
    """

    shape: tuple[int, ...]
    index: tuple[slice, ...]
    on_single_rank: bool = False

    @property
    def own_shape(self) -> tuple[int, ...]:
        return tuple(len(range(*place.indices(n))) for place, n in zip(self.index, self.shape, strict=True))

    @property
    def is_whole(self) -> bool:
        """Whether the part is everything, as on every rank."""
        return not self.on_single_rank and prod(self.own_shape) == prod(self.shape)

    def of(self, whole: np.ndarray) -> np.ndarray:
        """The part of a whole array, of any shape with as many elements."""
        return whole.reshape(self.shape)[self.index]


class Parts(Protocol):
    """How one rank's net differs from the whole net."""

    def layer(self, param: Any, context: Context, bottoms: Sequence[Blob]) -> Layer | None:
        """The layer that stands here for the one of a message; None for the type that the message names."""

    def fill(self, param: Any, layer: Layer) -> None:
        """Give a layer's parameters, right after its setup, their part of the whole layer's initial values."""

    def portion(self, layer: str, blob: int) -> Portion | None:
        """The part of a parameter that is here; None: all of it."""

    def original(self, param: Any) -> Any:
        """The whole net's message of a layer; None for a layer that the whole net does not have."""

    def whole(self, layer: str, blob: int, part: np.ndarray) -> np.ndarray:
        """A whole parameter, or what goes with it, from the parts of a replica's ranks, which all call it.
        Returns the whole on the first of the ranks, elsewhere the part."""
