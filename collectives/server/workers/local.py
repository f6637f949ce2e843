"""Local tables: rows that are one worker's own. No shard holds them and no message is sent for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.server.rows.local_rows import LocalRows, LocalTable
from scaffe.collectives.server.tables.table import Index
from scaffe.collectives.server.workers.bound import BoundBatch
from scaffe.collectives.server.workers.sequence import Recorder
from scaffe.collectives.server.workers.worker import Worker


class LocalBatch(BoundBatch):
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
            worker: whose client checks the calls.
            state: what that client calls the batch.
            table: where the table lies.
        """
        self._worker, self._state, self._rows = worker, state, table.rows(self.index)

    def read(self) -> Any:
        """The rows, (n_keys, row_elems), read-only, until ``post_read``; of a table on the device CuPy's array.

        Raises:
            CommError: its buffer is given out already.
        """
        self._bound().read(self._state, "")
        rows = self._rows.lend(fetch=True)
        self._note("read", moves=True)
        return _read_only(rows)

    def post_read(self) -> None:
        """Give the rows back. Raises CommError where they are not being read."""
        self._bound().post_read(self._state)
        self._rows.give_back(save=False)
        self._note("post_read", moves=False)

    def pre_update(self, no_fetch: bool = False) -> Any:
        """The rows to change, (n_keys, row_elems), until ``update``.

        Args:
            no_fetch: the rows' values are not needed: the buffer's content is undefined; the caller fills all of it.

        Raises:
            CommError: its buffer is given out already.
        """
        self._bound().pre_update(self._state, "")
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
        self._bound().update(self._state, (1.0, 0.0))
        self._rows.give_back(save=not no_save)
        self._note("update", moves=not no_save)


def _read_only(rows: Any) -> Any:
    """Rows that the caller must not change: numpy's refuse it, CuPy's arrays cannot."""
    view = rows.view()
    if isinstance(view, np.ndarray):
        view.flags.writeable = False
    return view
