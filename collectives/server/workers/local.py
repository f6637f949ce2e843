"""Where a local table lies, and how rows of a batch come out of it and go back: host or device memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.kernels import RowOrder
from scaffe.collectives.server.tables.table import Index, Table
from scaffe.collectives.server.workers.batch import BatchHandle, Recorder
from scaffe.collectives.server.workers.worker import Worker
from scaffe.collectives.shared.kernels import gather_ranges, scatter_ranges


class LocalTable:
    """A local table in host memory, or in the current device's. Raises CommError where there is no device.

    Attributes:
        values: flat, 0 at first.
        arrays: NumPy, or on a device CuPy.
        used: on a device, the end of what was last done with the table, on whichever stream; None in host memory.
    """

    def __init__(self, table: Table, memory: str) -> None:
        self.table, self._memory = table, memory
        self.arrays: Any = np if memory == "host" else device.load()
        self.values: Any = self.arrays.zeros(table.n_elems, table.dtype)
        self.used: device.Point | None = None
        if memory == "device":
            self.used = device.Point(self.arrays.cuda.Event(disable_timing=True))
            self.mark()

    def mark(self) -> None:
        """On a device: what the caller's stream has been given so far was the last that was done with the table."""
        if self.used is not None:
            self.used.mark(self.arrays.cuda.get_current_stream())

    def host_values(self) -> np.ndarray:
        """The values as they are now, flat, in host memory, which may be the table's own; of a device a copy, for
        which the host waits."""
        if self.used is None:
            values: np.ndarray = self.values
            return values
        self.used.hold()
        return self.values.get()  # type: ignore[no-any-return]

    def like(self) -> LocalTable:
        return LocalTable(self.table, self._memory)


class LocalRows:
    """A batch's rows of a local table. Rows that are one slice of the table need no buffer of their own.

    On a device one kernel on the caller's current stream moves them, which follows what was last done with the table.

    Attributes:
        buffer: what the caller gets, (n_rows, row_elems).
    """

    def __init__(self, table: LocalTable, index: Index) -> None:
        self._table, self._ranges, self._is_slice = table, index.ranges, index.is_slice
        n_rows, row_elems = index.n_rows, index.table.row_elems
        first, _, n_elems = index.ranges[0].tolist()
        flat = (table.values[first : first + n_elems] if index.is_slice
                else table.arrays.empty(index.n_elems, index.table.dtype))
        self.buffer: Any = flat.reshape(n_rows, row_elems)
        self._spread = table.values.reshape(index.table.n_rows, row_elems)
        is_moved = table.used is not None and not index.is_slice
        self._order = RowOrder(index.keys(), self.buffer.nbytes // n_rows) if is_moved else None

    def lend(self, fetch: bool) -> Any:
        """The buffer; ``fetch``: with the rows in it."""
        if self._table.used is not None:
            self._table.used.hold()
        if self._order is not None and fetch:
            self._order.gather(self._spread, self.buffer)
        elif fetch and not self._is_slice:
            gather_ranges(self._table.values, self._ranges, self.buffer.reshape(-1))
        return self.buffer

    def give_back(self, save: bool) -> None:
        """Take the buffer back; ``save``: put its rows into the table."""
        if self._order is not None and save:
            self._order.scatter(self.buffer, self._spread)
        elif save and not self._is_slice:
            scatter_ranges(self._table.values, self._ranges, self.buffer.reshape(-1))
        self._table.mark()


class LocalBatch(BatchHandle):
    """Rows of a local table (GeePS: Cui et al., EuroSys 2016, 3.2); ``ParameterServer.local_batch`` makes one.

    As with a Batch, ``read`` and ``pre_update`` give buffers out, ``post_read`` and ``update`` take them back; but an
    update replaces the rows, may be made any number of times in an iteration, and is seen by every read after it.
    """

    is_local = True

    def __init__(self, number: int, index: Index, recorder: Recorder) -> None:
        super().__init__(number, index, recorder)
        self._state = 0
        self._rows: LocalRows

    def bind(self, worker: Worker, state: int, table: LocalTable) -> None:
        self._worker, self._state, self._rows = worker, state, LocalRows(table, self.index)

    def read(self) -> Any:
        """The rows, (n_keys, row_elems), read-only, until ``post_read``; of a table on the device CuPy's array.

        Raises:
            CommError: its buffer is given out already.
        """
        self._working().read(self._state, "")
        rows = self._rows.lend(fetch=True)
        self._note("read", moves=True)
        return _read_only(rows)

    def post_read(self) -> None:
        """Give the rows back. Raises CommError where they are not being read."""
        self._working().post_read(self._state)
        self._rows.give_back(save=False)
        self._note("post_read", moves=False)

    def pre_update(self, no_fetch: bool = False) -> Any:
        """The rows to change, (n_keys, row_elems), until ``update``.

        Args:
            no_fetch: the rows' values are not needed: the buffer's content is undefined; the caller fills all of it.

        Raises:
            CommError: its buffer is given out already.
        """
        self._working().pre_update(self._state, "")
        rows = self._rows.lend(fetch=not no_fetch)
        self._note("pre_update", moves=not no_fetch)
        return rows

    def update(self, no_save: bool = False) -> None:
        """Give the changed rows back.

        Args:
            no_save: their values are not needed any more: what the table has there afterwards is undefined.

        Raises:
            CommError: ``pre_update`` was not called first.
        """
        self._working().update(self._state, (1.0, 0.0))
        self._rows.give_back(save=not no_save)
        self._note("update", moves=not no_save)


def _read_only(rows: Any) -> Any:
    """Rows that the caller must not change: numpy's refuse it, CuPy's arrays cannot."""
    view = rows.view()
    if isinstance(view, np.ndarray):
        view.flags.writeable = False
    return view
