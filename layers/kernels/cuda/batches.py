"""Copies batches to the device one ahead, from page-locked memory, on a stream of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from scaffe.layers.kernels import device

_readers: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()  # by id: the pinned memory that readers fill


def pinned_allocator() -> Callable[[int], np.ndarray]:
    """What gives readers page-locked memory, of the device that is now current whichever thread calls it."""
    number = device.current()

    def allocate(n_elems: int) -> np.ndarray:
        if device.current() != number:
            device.load().cuda.Device(number).use()
        memory = device.pinned(n_elems, np.float32)
        owner = _owner(memory)
        _readers[id(owner)] = owner
        return memory
    return allocate


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that a view is of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _is_readers(array: np.ndarray) -> bool:
    """Whether a device can copy the array from where it lies."""
    owner = _owner(array)
    return _readers.get(id(owner)) is owner and array.flags.c_contiguous


class _Slot:
    """Memory of one batch on the device, on the host where the readers' cannot be copied, and when it has arrived."""

    def __init__(self, batch: Sequence[np.ndarray]) -> None:
        self.arrays = [device.load().empty(a.shape, a.dtype) for a in batch]
        self.arrived = device.load().cuda.Event(disable_timing=True)
        self._pinned: dict[int, np.ndarray] = {}

    def fits(self, batch: Sequence[np.ndarray]) -> bool:
        return [(a.shape, a.dtype) for a in batch] == [(a.shape, a.dtype) for a in self.arrays]

    def page_locked(self, number: int, array: np.ndarray) -> np.ndarray:
        """Array ``number`` of the batch in memory that a device can copy: itself, or a copy."""
        if _is_readers(array):
            return array
        if number not in self._pinned:
            self._pinned[number] = device.pinned(array.shape, array.dtype)
        np.copyto(self._pinned[number], array)
        return self._pinned[number]


class Staging:
    """Double buffering: while the net computes on one batch, the next one is copied to the other buffer.

    Args:
        next_batch: returns the arrays of the next batch, in host memory; they are valid until its next call.
    """

    def __init__(self, next_batch: Callable[[], Sequence[np.ndarray]]) -> None:
        self._next_batch = next_batch
        self._slots: list[_Slot | None] = [None, None]
        self._turn = 0
        self._stream: Any = None

    def next(self) -> list[Any]:
        """The next batch on the device, where it has arrived: its copy began an iteration ago.

        The arrays are valid until the next call.
        """
        current = device.load().cuda.get_current_stream()
        if self._stream is None:
            self._stream = device.stream()
            self._send(current)
        slot = self._slots[self._turn]
        if slot is None:
            raise RuntimeError("a batch was sent to no slot")
        self._turn = 1 - self._turn
        self._send(current)
        return slot.arrays

    def _send(self, consumer: Any) -> None:
        """Start the next batch on its way into the slot whose turn is next; its last reader is queued already."""
        last = self._slots[1 - self._turn]
        if last is not None:
            last.arrived.synchronize()  # it is the one handed out now, and the readers may write to its memory again
        batch = self._next_batch()
        slot = self._slots[self._turn]
        if slot is None or not slot.fits(batch):
            slot = self._slots[self._turn] = _Slot(batch)
        sources = [slot.page_locked(number, array) for number, array in enumerate(batch)]
        self._stream.wait_event(consumer.record())
        for source, target in zip(sources, slot.arrays, strict=True):
            target.set(source, stream=self._stream)
        slot.arrived.record(self._stream)
