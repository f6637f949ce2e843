"""A batch's buffers: what a read returns, the table's own memory where that cannot change meanwhile, else a copy; and
what is filled for an update."""

from __future__ import annotations

import numpy as np

from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.server.memory.common import InMemory
from scaffe.collectives.server.tables.table import Index
from scaffe.collectives.server.workers.device_rows import DeviceRows, DeviceUpdate
from scaffe.collectives.shared.kernels import gather_ranges


class _Host:
    """A buffer in host memory: lent and given back without more ado."""

    buffer: np.ndarray

    def lend(self) -> np.ndarray:
        """The buffer, (n_keys, row_elems)."""
        return self.buffer

    def give_back(self) -> None:
        """Nothing is to be done."""


class Update(_Host):
    """An update buffer in the memory that shards read."""

    fetch = None

    def __init__(self, update: np.ndarray, index: Index) -> None:
        self.buffer = update.reshape(index.n_rows, index.table.row_elems)


class View(_Host):
    """Rows that are contiguous in the table, and do not change while they are read or lie in a file: nothing is
    copied."""

    is_copied = False

    def __init__(self, values: np.ndarray, index: Index) -> None:
        first, _, n_elems = index.ranges[0].tolist()
        self.buffer = _read_only(values[first : first + n_elems], index)

    def gather(self) -> None:
        """The rows are there already."""


class Copy(_Host):
    """Rows that are scattered, or that change whenever an update comes: each iteration's are gathered into a buffer.

    One buffer is enough for gathering ahead: an iteration cannot end while the last one's rows are still being read.
    """

    is_copied = True

    def __init__(self, values: np.ndarray, index: Index, tier: InMemory) -> None:
        self._values, self._ranges, self._tier = values, index.ranges, tier
        self._gathered = np.empty(index.n_elems, values.dtype)
        self.buffer = _read_only(self._gathered.view(), index)

    def gather(self) -> None:
        """Copy the rows as they are now. Without the interpreter's lock: other threads go on."""
        gather_ranges(self._values, self._ranges, self._gathered)
        self._tier.release(np.array([self._values.ctypes.data]), self._values.nbytes)


Rows = View | Copy | DeviceRows
"""What a read lends, read-only: ``is_copied`` says whether ``gather`` must fill it first."""
Updates = Update | DeviceUpdate
"""What an update is filled into: ``fetch``, unless None, brings it to where shards read it."""


def rows_of(values: np.ndarray, index: Index, slack: float, streams: Streams | None,
            positions: np.ndarray | None, tier: InMemory) -> Rows:
    """What a read of a batch lends.

    Args:
        values: the whole table's values, flat.
        index: where the rows lie.
        slack: the server's.
        streams: of the device in whose memory the buffer is to be; None: in host memory.
        positions: see Batch.
        tier: has the table.
    """
    if streams is not None:
        return DeviceRows(values, index, streams, positions)
    stays = not slack or not tier.keeps_all
    return View(values, index) if index.is_slice and stays else Copy(values, index, tier)


def update_of(update: np.ndarray, index: Index, streams: Streams | None, positions: np.ndarray | None) -> Updates:
    """What an update of a batch is filled into. ``update``: the buffer that shards read, flat; others: see rows_of."""
    return Update(update, index) if streams is None else DeviceUpdate(update, index, streams, positions)


def _read_only(rows: np.ndarray, index: Index) -> np.ndarray:
    rows.flags.writeable = False
    return rows.reshape(index.n_rows, index.table.row_elems)
