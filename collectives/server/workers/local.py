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


class LocalRows:
    """A batch's rows of a local table in host memory. Rows that are one slice of the table need no buffer of their own.

    Attributes:
        buffer: what the caller gets, (n_rows, row_elems).
    """

    def __init__(self, table: LocalTable, index: Index) -> None:
        self._table, self._index = table, index
        shape = index.n_rows, index.table.row_elems
        first, _, n_elems = index.ranges[0].tolist()
        flat = table.values[first : first + n_elems] if index.is_slice else table.empty(index.n_elems)
        self.buffer: Any = flat.reshape(*shape)

    def lend(self, fetch: bool) -> Any:
        """The buffer; ``fetch``: with the rows in it."""
        if fetch and not self._index.is_slice:
            self._gather()
        return self.buffer

    def give_back(self, save: bool) -> None:
        """Take the buffer back; ``save``: put its rows into the table."""
        if save and not self._index.is_slice:
            self._scatter()

    def _gather(self) -> None:
        gather_ranges(self._table.values, self._index.ranges, self.buffer.reshape(-1))

    def _scatter(self) -> None:
        scatter_ranges(self._table.values, self._index.ranges, self.buffer.reshape(-1))


class DeviceLocalRows(LocalRows):
    """In device memory: one kernel on the caller's current stream, which follows what was last done with the table."""

    _table: DeviceTable

    def __init__(self, table: DeviceTable, index: Index) -> None:
        super().__init__(table, index)
        self._spread = table.values.reshape(index.table.n_rows, index.table.row_elems)
        self._order = None if index.is_slice else RowOrder(index.keys(), self.buffer.nbytes // index.n_rows)

    def lend(self, fetch: bool) -> Any:
        self._table.used.hold()
        return super().lend(fetch)

    def give_back(self, save: bool) -> None:
        super().give_back(save)
        self._table.used.mark(self._table.current_stream())

    def _gather(self) -> None:
        if self._order is not None:
            self._order.gather(self._spread, self.buffer)

    def _scatter(self) -> None:
        if self._order is not None:
            self._order.scatter(self.buffer, self._spread)


class LocalTable:
    """A local table in host memory.

    Attributes:
        values: flat, 0 at first.
    """

    def __init__(self, table: Table) -> None:
        self.table, self.values = table, self._zeros(table)

    def rows(self, index: Index) -> LocalRows:
        """Rows of the table."""
        return LocalRows(self, index)

    def host_values(self) -> np.ndarray:
        """The values as they are now, flat, in host memory; may be the table's own memory."""
        values: np.ndarray = self.values
        return values

    def like(self) -> LocalTable:
        """Another table of the same shape, in the same kind of memory."""
        return type(self)(self.table)

    def empty(self, n_elems: int) -> Any:
        """Memory of the same kind and dtype, flat, uninitialised."""
        return np.empty(n_elems, self.table.dtype)

    def _zeros(self, table: Table) -> Any:
        return np.zeros(table.n_elems, table.dtype)


class DeviceTable(LocalTable):
    """A local table in the current device's memory. Raises CommError without a device.

    Attributes:
        used: the end of what was last done with it, on whichever stream.
    """

    def __init__(self, table: Table) -> None:
        self._cuda = device.load()
        super().__init__(table)
        self.used = device.Point(self._cuda.cuda.Event(disable_timing=True))
        self.used.mark(self.current_stream())

    def rows(self, index: Index) -> LocalRows:
        return DeviceLocalRows(self, index)

    def host_values(self) -> np.ndarray:
        """A copy, for which the host waits."""
        self.used.hold()
        return self.values.get()  # type: ignore[no-any-return]

    def empty(self, n_elems: int) -> Any:
        return self._cuda.empty(n_elems, self.table.dtype)

    def current_stream(self) -> Any:
        """The caller's."""
        return self._cuda.cuda.get_current_stream()

    def _zeros(self, table: Table) -> Any:
        return self._cuda.zeros(table.n_elems, table.dtype)


LOCAL_TABLES = {"host": LocalTable, "device": DeviceTable}
"""By the name of the memory."""


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
        """Attach the batch to its worker and its memory.

        Args:
            state: what that client calls the batch.
        """
        self._worker, self._state, self._rows = worker, state, table.rows(self.index)

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
