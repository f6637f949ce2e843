"""Copies on the device: strided views, pixels to floats, and batches one ahead from page-locked memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.launch import NAMES, THREADS, blocks_for, columns_grid, kernel, pack, run_flat, wide
from scaffe.layers.kernels.extents import expect_elems

Ints = tuple[int, ...]
FEW_ROWS = 8  # then a block is one row's


def as_rows(shape: Ints, strides: Ints, other_strides: Ints, itemsize: int) -> tuple[int, int, int, int] | None:
    """Two strided views of equal shape, with strides in bytes, as matrices of equal shape with contiguous rows: (rows,
    columns, row stride of the first view in elements, that of the second); None if they are not."""
    axes = sorted((a for a in zip(strides, other_strides, shape, strict=True) if a[2] != 1), reverse=True)
    merged: list[list[int]] = []
    for one, other, n in axes:
        if merged and merged[-1][0] == one * n and merged[-1][1] == other * n:
            merged[-1] = [one, other, merged[-1][2] * n]
        else:
            merged.append([one, other, n])
    if not merged or merged[-1][:2] != [itemsize, itemsize]:
        merged.append([itemsize, itemsize, 1])
    if len(merged) == 1:
        merged.insert(0, [itemsize * merged[0][2]] * 2 + [1])
    if len(merged) > 2:
        return None
    (row, other_row, n_rows), (_, _, n_columns) = merged
    return n_rows, n_columns, row // itemsize, other_row // itemsize


def copy_part(target: Any, source: Any) -> None:
    """target = source, for views of equal shape, any strides."""
    if not target.size:
        return
    rows = as_rows(target.shape, target.strides, source.strides, target.itemsize)
    if rows is None or target.dtype != source.dtype or target.dtype.name not in NAMES or target.shape != source.shape:
        target[...] = source
        return
    n_rows, n_columns, target_row, source_row = rows
    if n_rows < FEW_ROWS:
        grid, block = (blocks_for(-(-n_columns // pack(target.dtype)))[0], n_rows), (THREADS, 1)
    else:
        grid, block = columns_grid(n_rows, n_columns, target.dtype)
    kernel("elementwise", "copy_rows", target.dtype)(
        grid, block, (np.uint64(source.data.ptr), np.uint64(target.data.ptr), np.int64(source_row),
                      np.int64(target_row), np.int32(n_rows), np.int32(n_columns)))


I = np.int32  # noqa: E741 - the kernel's int


class Pixels:
    """y = (pixel - mean) · scale, mirrored where that is asked for: in float32 the bits that readers compute; see
    ``Backend.pixels``."""

    def __init__(self, change: Any) -> None:
        self._mean = device.load().asarray(change.mean)
        self._strides, self._scale = (I(change.row_stride), I(change.column_stride)), np.float32(change.scale)

    def run(self, pixels: Any, places: Any, y: Any) -> None:
        """Write y, flat, from uint8 (n, height, width, channels); places as in ``backend.Pixels``."""
        n, height, width, n_channels = pixels.shape
        expect_elems(pixels.size, y)
        expect_elems(3 * n, places)
        run_flat("conversion", "floats_of_pixels", y.dtype, pixels.size,
                 (pixels, places, self._mean, *self._strides, wide(y.dtype).type(self._scale), y, I(height), I(width),
                  I(n_channels)), per_thread=1)


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


class _Slot:
    """Memory of one batch on the device, on the host where the readers' cannot be copied, and when it has arrived."""

    def __init__(self, batch: Sequence[Any]) -> None:
        self.arrays = [device.load().empty(a.shape, a.dtype) for a in batch]
        self.arrived = device.load().cuda.Event(disable_timing=True)
        self._pinned: dict[int, np.ndarray] = {}

    def fits(self, batch: Sequence[Any]) -> bool:
        return [(a.shape, a.dtype) for a in batch] == [(a.shape, a.dtype) for a in self.arrays]

    def page_locked(self, number: int, array: Any) -> Any:
        """Array ``number`` of the batch in memory that a device can copy: itself, also on a device, or a copy."""
        if not isinstance(array, np.ndarray):
            return array
        owner = _owner(array)
        if _readers.get(id(owner)) is owner and array.flags.c_contiguous:
            return array
        if number not in self._pinned:
            self._pinned[number] = device.pinned(array.shape, array.dtype)
        np.copyto(self._pinned[number], array)
        return self._pinned[number]


class Staging:
    """Double buffering: while the net computes on one batch, the next one is copied to the other buffer.

    Args:
        next_batch: returns the arrays of the next batch, in host memory, or on the device, where they are complete;
            they are valid until its next call, and so those on the device are copied, too.
    """

    def __init__(self, next_batch: Callable[[], Sequence[Any]]) -> None:
        self._next_batch = next_batch
        self._slots: list[_Slot | None] = [None, None]
        self._turn = 0
        self._stream: Any = None

    def next(self) -> list[Any]:
        """The next batch on the device, valid until the next call: its copy began an iteration ago."""
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
            if isinstance(source, np.ndarray):
                target.set(source, stream=self._stream)
            else:
                target.data.copy_from_device_async(source.data, source.nbytes, self._stream)
        slot.arrived.record(self._stream)
