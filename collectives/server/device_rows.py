"""A batch's buffers in device memory, with pinned staging: copies run on the server's own streams, ordered by events.

After GeePS (Cui et al., EuroSys 2016, 3.1): the worker computes on buffers in device memory, and what moves between
them and the host's memory moves in the background. No call of the worker's waits for the device: its current stream
does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.messages.staging import DEVICE_TO_HOST, HOST_TO_DEVICE
from scaffe.collectives.cuda.messages.start_queue import wait_until
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.server.runs import gather_runs
from scaffe.collectives.server.table import Index


class _Buffer:
    """A device array of a batch's shape, as much pinned memory, and points that copies and callers set."""

    def __init__(self, index: Index, streams: Streams) -> None:
        cuda = device.load()
        self.buffer: Any = cuda.empty((index.n_rows, index.table.row_elems), index.table.dtype)
        self._pinned = device.pinned(self.buffer.nbytes).view(index.table.dtype)
        self._streams, self._cuda = streams, cuda.cuda
        self._lent, self._copied = streams.event(), streams.event()

    def lend(self) -> Any:
        """The buffer, for the current stream, which follows the last copy."""
        self._copied.hold()
        return self.buffer

    def _copy(self, target: int, source: int, kind: int, stream: Any, after: Point) -> None:
        """Queue a copy of the whole on a stream, after a point, and set ``_copied`` behind it."""
        after.hold(stream)
        self._cuda.runtime.memcpyAsync(target, source, self.buffer.nbytes, kind, stream.ptr)
        self._copied.mark(stream)


class DeviceRows(_Buffer):
    """What a read returns: rows gathered into pinned memory, then copied to the device on the communication stream.

    Args:
        values: the whole table's values, flat, in host memory.
        index: where the rows lie.
        streams: the server's.
    """

    is_copied = True

    def __init__(self, values: np.ndarray, index: Index, streams: Streams) -> None:
        super().__init__(index, streams)
        self._values, self._runs = values, index.runs

    def gather(self) -> None:
        """Gather the rows as they are now, and queue their copy behind what has used the last ones."""
        device.make_current(self._streams.number)  # for the puller's thread
        wait_until(self._copied.is_reached, backs_off=True)  # the pinned memory's last content has been read
        gather_runs(self._values, self._runs, self._pinned)
        self._copy(self.buffer.data.ptr, self._pinned.ctypes.data, HOST_TO_DEVICE, self._streams.comm, self._lent)

    def give_back(self) -> None:
        """Note what the current stream has been given: the next copy follows it."""
        self._lent.mark(self._cuda.get_current_stream())


class DeviceUpdate(_Buffer):
    """An update buffer: copied to pinned memory on the copy stream, from where the pusher takes it.

    Args:
        update: the update buffer that shards read, flat, in host memory.
        index: where the rows lie.
        streams: the server's.
    """

    def __init__(self, update: np.ndarray, index: Index, streams: Streams) -> None:
        super().__init__(index, streams)
        self._update = update

    def give_back(self) -> None:
        """Queue the copy to pinned memory behind what the current stream has been given."""
        self._lent.mark(self._cuda.get_current_stream())
        self._copy(self._pinned.ctypes.data, self.buffer.data.ptr, DEVICE_TO_HOST, self._streams.copy, self._lent)

    def fetch(self) -> None:
        """Wait until the copy is there, and put it where the shards read it."""
        device.make_current(self._streams.number)  # for the pusher's thread
        wait_until(self._copied.is_reached, backs_off=True)
        np.copyto(self._update, self._pinned)
