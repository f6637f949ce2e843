"""Memory that the ranks of a replica on one node map together."""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np

from scaffe.training.partition.group import Group


class Mapped:
    """An array of zeros that the ranks map when they first use it, all in the same order: in their first forward.

    In ``reshape`` a rank that failed to build its net would leave the others waiting for it.

    Args:
        group: the ranks of the replica.
        shape: of the array, the same on all ranks.
        dtype: of the array.
    """

    def __init__(self, group: Group, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._group, self._shape, self._dtype = group, shape, np.dtype(dtype)

    @cached_property
    def array(self) -> np.ndarray:
        """The array itself."""
        return self._group.zeros(prod(self._shape), self._dtype).reshape(self._shape)
