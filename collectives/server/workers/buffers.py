"""A batch's buffers, which reads and updates lend: in host memory, or on a device.

In host memory a read returns the table's own memory where that cannot change meanwhile, else a copy.
On a device (after GeePS: Cui et al., EuroSys 2016, 3.1) the worker computes on buffers in device memory; copies between
them and host memory run in the background, on the server's own streams, ordered by events. No call of the worker waits
for the device: its current stream does. A kernel puts rows into the batch's order where that is not the table's, so
that the host copies the longest ranges there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.device import Point, on_stream
from scaffe.collectives.cuda.kernels import RowOrder
from scaffe.collectives.cuda.messages.message import wait_until
from scaffe.collectives.cuda.messages.staging import DEVICE_TO_HOST, HOST_TO_DEVICE
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.server.memory.common import InMemory
from scaffe.collectives.server.tables.table import Index
from scaffe.collectives.shared.kernels import gather_ranges


class _Buffer:
    """What reads and updates have in common: device memory, pinned memory, and points that copies and callers set.
    ``buffer``: what a worker gets, (n_rows, row_elems)."""

    def __init__(self, index: Index, streams: Streams, positions: np.ndarray | None) -> None:
        cuda = device.load()
        self.buffer: Any = cuda.empty((index.n_rows, index.table.row_elems), index.table.dtype)
        self._cache, self._order = self.buffer, None  # what copies go to and come from; how its rows get to the buffer
        if positions is not None:
            self._cache = cuda.empty(self.buffer.shape, self.buffer.dtype)
            self._order = RowOrder(positions, self.buffer.nbytes // len(positions))
        self._pinned = device.pinned(self.buffer.nbytes).view(index.table.dtype)
        self._streams, self._cuda = streams, cuda.cuda
        self._lent, self._copied = streams.event(), streams.event()
        self._lent.mark(self._cuda.get_current_stream())
        self._lent.hold(streams.comm)  # who had this memory before may be at work on it still

    def lend(self) -> Any:
        """The buffer, for the current stream, which follows the last copy."""
        self._copied.hold()
        return self.buffer

    def _copy(self, target: int, source: int, kind: int, stream: Any) -> None:
        self._cuda.runtime.memcpyAsync(target, source, self.buffer.nbytes, kind, stream.ptr)


class DeviceRows(_Buffer):
    """What a read returns: rows gathered into pinned memory, then copied to the device on the communication stream.
    ``values``: the whole table's values, flat, in host memory."""

    is_copied = True

    def __init__(self, values: np.ndarray, index: Index, streams: Streams, positions: np.ndarray | None = None) -> None:
        super().__init__(index, streams, positions)
        self._values, self._ranges = values, index.ranges

    def gather(self) -> None:
        """Gather the rows as they are now, and queue what brings them into the buffer."""
        device.make_current(self._streams.number)  # for the puller's thread
        wait_until(self._copied.is_reached, backs_off=True)  # the pinned memory's last content has been read
        gather_ranges(self._values, self._ranges, self._pinned)
        comm = self._streams.comm
        if self._order is None:
            self._lent.hold(comm)  # the copy overwrites what the worker has computed on
        self._copy(self._cache.data.ptr, self._pinned.ctypes.data, HOST_TO_DEVICE, comm)
        if self._order is not None:  # only this kernel does
            self._lent.hold(comm)
            with on_stream(comm):
                self._order.gather(self._cache, self.buffer)
        self._copied.mark(comm)

    def give_back(self) -> None:
        """Note what the current stream has been given: the next rows follow it."""
        self._lent.mark(self._cuda.get_current_stream())


class DeviceUpdate(_Buffer):
    """An update buffer: copied to pinned memory on the copy stream, from where the pusher takes it. ``update``: the
    update buffer that shards read, flat, in host memory."""

    def __init__(self, update: np.ndarray, index: Index, streams: Streams, positions: np.ndarray | None = None) -> None:
        super().__init__(index, streams, positions)
        self._update = update

    def give_back(self) -> None:
        """Queue the copy to pinned memory behind what the current stream has been given."""
        self._lent.mark(self._cuda.get_current_stream())
        self._take(self._lent)

    def fetch(self) -> None:
        """Wait until the copy is there, and put it where the shards read it."""
        device.make_current(self._streams.number)  # for the pusher's thread
        wait_until(self._copied.is_reached, backs_off=True)
        np.copyto(self._update, self._pinned)

    def _take(self, after: Point) -> None:
        """Queue what brings the buffer to pinned memory, after a point."""
        copy = self._streams.copy
        after.hold(copy)
        if self._order is not None:
            with on_stream(copy):
                self._order.scatter(self.buffer, self._cache)
        self._copy(self._pinned.ctypes.data, self._cache.data.ptr, DEVICE_TO_HOST, copy)
        self._copied.mark(copy)


class InPlace:
    """A buffer in host memory where nothing is copied: that of an update, where shards read it; or rows that are
    contiguous in the table, and do not change while they are read or lie in a file. ``buffer``: (n_keys, row_elems)."""

    is_copied, fetch = False, None

    def __init__(self, buffer: np.ndarray) -> None:
        self.buffer = buffer

    def lend(self) -> np.ndarray:
        """The buffer, without more ado."""
        return self.buffer

    def give_back(self) -> None:
        """Nothing is to be done."""

    def gather(self) -> None:
        """The rows are there already."""


class Copy(InPlace):
    """Rows that are scattered, or that change whenever an update comes: each iteration's are gathered into a buffer.

    One buffer is enough for gathering ahead: an iteration cannot end while the last one's rows are still being read.
    """

    is_copied = True

    def __init__(self, values: np.ndarray, index: Index, tier: InMemory) -> None:
        self._values, self._ranges, self._tier = values, index.ranges, tier
        self._gathered = np.empty(index.n_elems, values.dtype)
        super().__init__(_read_only(self._gathered.view(), index))

    def gather(self) -> None:
        """Copy the rows as they are now. Without the interpreter's lock: other threads go on."""
        gather_ranges(self._values, self._ranges, self._gathered)
        self._tier.release(np.array([self._values.ctypes.data]), self._values.nbytes)


Rows = InPlace | DeviceRows
"""What a read lends, read-only: ``is_copied`` says whether ``gather`` must fill it first."""
Updates = InPlace | DeviceUpdate
"""What an update is filled into: ``fetch``, unless None, brings it to where shards read it."""


def rows_of(values: np.ndarray, index: Index, slack: float, streams: Streams | None,
            positions: np.ndarray | None, tier: InMemory) -> Rows:
    """What a read of a batch lends. ``values``: the whole table's values, flat; ``streams``: of the device in whose
    memory the buffer is to be; None: in host memory."""
    if streams is not None:
        return DeviceRows(values, index, streams, positions)
    if not index.is_slice or (slack and tier.keeps_all):
        return Copy(values, index, tier)
    first, _, n_elems = index.ranges[0].tolist()
    return InPlace(_read_only(values[first : first + n_elems], index))


def update_of(update: np.ndarray, index: Index, streams: Streams | None, positions: np.ndarray | None) -> Updates:
    """What an update of a batch is filled into. ``update``: the buffer that shards read, flat; others: see rows_of."""
    if streams is not None:
        return DeviceUpdate(update, index, streams, positions)
    return InPlace(update.reshape(index.n_rows, index.table.row_elems))


def _read_only(rows: np.ndarray, index: Index) -> np.ndarray:
    rows.flags.writeable = False
    return rows.reshape(index.n_rows, index.table.row_elems)
