"""Scratch memory on the device, shared by all plans, since they run one after another on one stream."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels import device

ALIGN_BYTES = 256
Part = tuple[int | tuple[int, ...], Any]  # shape and type


class Blocks:
    """One device's. They grow when plans are built (``reserve``), not while they run: addresses in graphs stay."""

    def __init__(self) -> None:
        self._blocks: list[Any] = []
        self._pinned = False
        self.n_bytes = 0

    def reserve(self, *parts: Part) -> None:
        """See Arena."""
        self._grow(sum(_bytes(part) for part in parts))

    def take(self, *parts: Part) -> list[Any]:
        self._grow(sum(_bytes(part) for part in parts))
        taken, start = [], 0
        for part in parts:
            shape, dtype = part
            n_bytes = prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
            taken.append(self._blocks[-1][start:start + n_bytes].view(dtype).reshape(shape))
            start += _bytes(part)
        return taken

    def pin(self) -> None:
        """See Arena."""
        self._pinned = True

    def _grow(self, n_bytes: int) -> None:
        if n_bytes > self.n_bytes or not self._blocks:
            self.n_bytes = max(n_bytes, ALIGN_BYTES)
            kept = self._blocks if self._pinned else []
            self._blocks = [*kept, device.load().empty(self.n_bytes, np.uint8)]


def _bytes(part: Part) -> int:
    shape, dtype = part
    n_bytes = prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
    return -(-n_bytes // ALIGN_BYTES) * ALIGN_BYTES


_blocks = device.PerDevice(Blocks)


class Arena:
    """The scratch memory of the current device."""

    def reserve(self, *parts: Part) -> None:
        """Grow, if needed, to hold arrays of these (shape, dtype) at once."""
        _blocks().reserve(*parts)

    @property
    def n_bytes(self) -> int:
        """The bytes of the current memory, without older memory that only captured graphs use."""
        return _blocks().n_bytes

    def take(self, *parts: Part) -> list[Any]:
        """Arrays of these (shape, dtype); contents undefined, valid until the next ``take``."""
        return _blocks().take(*parts)

    def pin(self) -> None:
        """From now on keep the old memory when growing: captured graphs use its addresses."""
        _blocks().pin()

    def forget(self) -> None:
        """Free the memory on all devices."""
        _blocks.cache_clear()


arena = Arena()
