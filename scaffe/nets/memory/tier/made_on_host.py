"""Host memory in which the parameters of a device's net are made: the device need not have room for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from scaffe.nets.memory.tier.mapping import in_pages


class MadeOnHost:
    """See ParamMemory. Parameters wait here until it is known which of them lie on the device."""

    stays: ClassVar[bool] = False

    def zeros(self, n_elems: int, dtype: np.dtype) -> np.ndarray:
        """See ParamMemory."""
        return in_pages(n_elems, np.dtype(dtype))

    def flat(self, pieces: Sequence[np.ndarray], starts: Sequence[int], n_elems: int, dtype: np.dtype) -> np.ndarray:
        """See ParamMemory: new memory, whose pages are taken as parameters come."""
        return in_pages(n_elems, np.dtype(dtype))

    def is_same(self, one: np.ndarray, other: np.ndarray) -> bool:
        """See ParamMemory: never, since ``flat`` takes new memory."""
        return False
