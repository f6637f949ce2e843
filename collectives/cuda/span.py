"""A stretch of memory by address: what messages and kernels need of an array, without keeping it alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Span:
    """`size` elements of `dtype` from `address` on, in device memory or (`is_pinned`) in pinned host memory."""

    address: int
    size: int
    dtype: np.dtype[Any]
    is_pinned: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self.size * self.dtype.itemsize

    def __getitem__(self, part: slice) -> Span:
        start, stop, _ = part.indices(self.size)
        return Span(self.address + start * self.dtype.itemsize, stop - start, self.dtype, self.is_pinned)

    def overlaps(self, other: Span) -> bool:
        """Whether any byte belongs to both."""
        return self.address < other.address + other.nbytes and other.address < self.address + self.nbytes

    def holds(self, other: Span) -> bool:
        """Whether every byte of `other` belongs to this span."""
        return self.address <= other.address and other.address + other.nbytes <= self.address + self.nbytes
