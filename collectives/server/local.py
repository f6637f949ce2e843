"""Local tables: rows that are one worker's own. No shard holds them and no message is sent for them."""

from __future__ import annotations

import numpy as np

from scaffe.collectives.server.bound import BoundBatch
from scaffe.collectives.server.runs import gather_runs, scatter_runs
from scaffe.collectives.server.sequence import Recorder
from scaffe.collectives.server.table import Index
from scaffe.collectives.server.worker import Worker


class LocalBatch(BoundBatch):
    """Rows of a local table (GeePS: Cui et al., EuroSys 2016, 3.2); ``ParameterServer.local_batch`` makes one.

    As with a Batch, ``read`` and ``pre_update`` give buffers out, ``post_read`` and ``update`` take them back; but an
    update replaces the rows, may be made any number of times in an iteration, and is seen by every read after it.
    """

    is_local = True

    def __init__(self, number: int, index: Index, recorder: Recorder) -> None:
        super().__init__(number, index, recorder)
        self._state = 0
        self._values = self._buffer = np.empty(0)

    def bind(self, worker: Worker, state: int, values: np.ndarray) -> None:
        """Attach the batch to its worker and its memory.

        Args:
            worker: whose client checks the calls.
            state: what that client calls the batch.
            values: the whole table's values, flat. Rows that are one slice of it need no buffer of their own.
        """
        self._worker, self._state, self._values = worker, state, values
        first, _, n_elems = self.index.runs[0].tolist()
        is_slice = self.index.is_slice
        self._buffer = values[first : first + n_elems] if is_slice else np.empty(self.index.n_elems, values.dtype)

    def read(self) -> np.ndarray:
        """The rows, (n_keys, row_elems), read-only, until ``post_read``.

        Raises:
            CommError: its buffer is given out already.
        """
        self._bound().read(self._state, "")
        self._fetch()
        rows = self._buffer.reshape(self.shape)
        rows.flags.writeable = False
        self._note("read", moves=True)
        return rows

    def post_read(self) -> None:
        """Give the rows back. Raises CommError where they are not being read."""
        self._bound().post_read(self._state)
        self._note("post_read", moves=False)

    def pre_update(self, no_fetch: bool = False) -> np.ndarray:
        """The rows to change, (n_keys, row_elems), until ``update``.

        Args:
            no_fetch: the rows' values are not needed: the buffer's content is undefined; the caller fills all of it.

        Raises:
            CommError: its buffer is given out already.
        """
        self._bound().pre_update(self._state, "")
        if not no_fetch:
            self._fetch()
        self._note("pre_update", moves=not no_fetch)
        return self._buffer.reshape(self.shape)

    def update(self, no_save: bool = False) -> None:
        """Give the changed rows back.

        Args:
            no_save: their values are not needed any more: what the table has there afterwards is undefined.

        Raises:
            CommError: ``pre_update`` was not called first.
        """
        self._bound().update(self._state, (1.0, 0.0))
        if not no_save and not self.index.is_slice:
            scatter_runs(self._values, self.index.runs, self._buffer)
        self._note("update", moves=not no_save)

    def _fetch(self) -> None:
        if not self.index.is_slice:
            gather_runs(self._values, self.index.runs, self._buffer)
