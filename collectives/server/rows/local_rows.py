"""Where a local table lies, and how rows of a batch come out of it and go back: host or device memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.rows import RowOrder
from scaffe.collectives.server.rows.runs import gather_runs, scatter_runs
from scaffe.collectives.server.tables.table import Index, Table


class LocalRows:
    """A batch's rows of a local table in host memory. Rows that are one slice of the table need no buffer of their own.

    Args:
        table: where the table lies.
        index: where the rows lie.

    Attributes:
        buffer: what the caller gets, (n_rows, row_elems).
    """

    def __init__(self, table: LocalTable, index: Index) -> None:
        self._table, self._index = table, index
        shape = index.n_rows, index.table.row_elems
        first, _, n_elems = index.runs[0].tolist()
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
        gather_runs(self._table.values, self._index.runs, self.buffer.reshape(-1))

    def _scatter(self) -> None:
        scatter_runs(self._table.values, self._index.runs, self.buffer.reshape(-1))


class DeviceLocalRows(LocalRows):
    """In device memory: one kernel on the caller's current stream, which follows what was last done with the table."""

    _table: DeviceTable

    def __init__(self, table: DeviceTable, index: Index) -> None:
        super().__init__(table, index)
        self._spread = table.values.reshape(index.table.n_rows, index.table.row_elems)
        self._order = None if index.is_slice else RowOrder(index.keys(), self.buffer.nbytes // index.n_rows)

    def lend(self, fetch: bool) -> Any:
        """See LocalRows."""
        self._table.used.hold()
        return super().lend(fetch)

    def give_back(self, save: bool) -> None:
        """See LocalRows."""
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

    Args:
        table: its shape and dtype.

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
        """See LocalTable."""
        return DeviceLocalRows(self, index)

    def host_values(self) -> np.ndarray:
        """A copy, for which the host waits."""
        self.used.hold()
        return self.values.get()  # type: ignore[no-any-return]

    def empty(self, n_elems: int) -> Any:
        """See LocalTable."""
        return self._cuda.empty(n_elems, self.table.dtype)

    def current_stream(self) -> Any:
        """The caller's."""
        return self._cuda.cuda.get_current_stream()

    def _zeros(self, table: Table) -> Any:
        return self._cuda.zeros(table.n_elems, table.dtype)


LOCAL_TABLES = {"host": LocalTable, "device": DeviceTable}
"""By the name of the memory."""
