"""Arrays of a plan in one piece of a device's memory, each at its offset: two that are never there together overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class DeviceArena:
    """See ArrayMemory. Nothing is taken or given back: an array's memory is its own while the plan has it there.

    Args:
        memory: uint8, on the device.
        lengths: of the arrays, in bytes.

    Attributes:
        arrays: views of the memory; none before the first ``arrange``.
        most_bytes: of others: there are none.
    """

    def __init__(self, memory: Any, lengths: Sequence[int]) -> None:
        self._memory, self._lengths = memory, list(lengths)
        self.arrays: list[Any] = []
        self.most_bytes = 0

    def arrange(self, offsets: Sequence[int] | None) -> None:
        """See ArrayMemory. Offsets there must be."""
        if offsets is None:
            raise ValueError("arrays on a device lie in one memory")
        self.arrays[:] = [self._memory[start:start + n_bytes]
                          for start, n_bytes in zip(offsets, self._lengths, strict=True)]

    def take(self, number: int) -> None:
        """See ArrayMemory: it is there."""

    def drop(self, number: int) -> None:
        """See ArrayMemory: nothing to do."""

    def give_back(self) -> None:
        """See ArrayMemory: nothing waits."""
