"""Copies batches to the device one ahead, through pinned memory, on a stream of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scaffe.layers.kernels import device


class _Slot:
    """Memory of one batch on both sides, and when it has arrived."""

    def __init__(self, batch: Sequence[np.ndarray]) -> None:
        self.pinned = [device.pinned(a.shape, a.dtype) for a in batch]
        self.arrays = [device.load().empty(a.shape, a.dtype) for a in batch]
        self.arrived = device.load().cuda.Event(disable_timing=True)

    def fits(self, batch: Sequence[np.ndarray]) -> bool:
        return [(a.shape, a.dtype) for a in batch] == [(a.shape, a.dtype) for a in self.pinned]


class Staging:
    """Double buffering: while the net computes on one batch, the next one is copied to the other buffer.

    Args:
        next_batch: returns the arrays of the next batch, in host memory.
    """

    def __init__(self, next_batch: Callable[[], Sequence[np.ndarray]]) -> None:
        self._next_batch = next_batch
        self._slots: list[_Slot | None] = [None, None]
        self._turn = 0
        self._stream: Any = None

    def next(self) -> list[Any]:
        """The next batch on the device. The current stream waits for its copy; the host does not.

        The arrays are valid until the next call.
        """
        current = device.load().cuda.get_current_stream()
        if self._stream is None:
            self._stream = device.stream()
            self._send(current)
        slot = self._slots[self._turn]
        if slot is None:
            raise RuntimeError("a batch was sent to no slot")
        current.wait_event(slot.arrived)
        self._turn = 1 - self._turn
        self._send(current)
        return slot.arrays

    def _send(self, consumer: Any) -> None:
        """Start the next batch on its way into the slot whose turn is next; its last reader is queued already."""
        batch = self._next_batch()
        slot = self._slots[self._turn]
        if slot is not None:
            slot.arrived.synchronize()  # two batches ago: pinned memory may be written again
        if slot is None or not slot.fits(batch):
            slot = self._slots[self._turn] = _Slot(batch)
        for pinned, array in zip(slot.pinned, batch, strict=True):
            np.copyto(pinned, array)
        self._stream.wait_event(consumer.record())
        for pinned, target in zip(slot.pinned, slot.arrays, strict=True):
            target.set(pinned, stream=self._stream)
        slot.arrived.record(self._stream)
