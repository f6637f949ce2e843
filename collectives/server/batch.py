"""Rows that a worker reads and updates together."""

from __future__ import annotations

import numpy as np

from scaffe.collectives.server.runs import gather_runs
from scaffe.collectives.server.table import Index
from scaffe.collectives.server.worker import Worker


class Batch:
    """Rows of one table that a worker reads and updates together; ``ParameterServer.batch`` makes one.

    Attributes:
        index: where the rows lie in the table.
        shape: shape of the read and the update buffer, (n_keys, row_elems).
    """

    def __init__(self, number: int, index: Index) -> None:
        self._number, self.index = number, index
        self.shape = (index.n_rows, index.table.row_elems)
        self._worker: Worker
        self._values = self._copy = self._update = np.empty(0)

    def bind(self, worker: Worker, values: np.ndarray, update: np.ndarray) -> None:
        """Attach the batch to its worker and its memory.

        Args:
            worker: the worker that sends and receives for this batch.
            values: the whole table's values, flat.
            update: this batch's update buffer, flat, n_keys * row_elems.
        """
        self._worker, self._values, self._update = worker, values, update.reshape(self.shape)

    def read(self) -> np.ndarray:
        """Wait until the rows are as new as the slack asks for.

        Returns:
            (n_keys, row_elems), read-only, valid until ``post_read``. With slack 0 the values cannot change before
            then, so rows that are contiguous in the table are returned as a view and not copied.

        Raises:
            CommError: the batch is being read already, or a rank is lost or late.
        """
        self._worker.read(self._number, f"rows of table {self.index.table.name!r}")
        return self._view()

    def post_read(self) -> None:
        """Give the rows back. Raises CommError where they are not being read."""
        self._worker.client.end_read(self._number)

    def pre_update(self) -> np.ndarray:
        """Wait until the last update has been applied.

        Returns:
            The update buffer, (n_keys, row_elems), uninitialised: the caller fills all of it.

        Raises:
            CommError: the buffer has been given out already, or a rank is lost or late.
        """
        self._worker.pre_update(self._number, f"its last update of table {self.index.table.name!r} to be applied")
        return self._update

    def update(self, rate: float = 1.0, iteration: float = 0) -> None:
        """Hand the filled buffer to the shards, which apply it asynchronously: this call does not wait for them.

        Args:
            rate: learning rate, passed to the table's rule.
            iteration: iterations done before this one, passed to the table's rule.

        Raises:
            CommError: ``pre_update`` was not called first.
        """
        self._worker.send(self._worker.client.end_update(self._number, (float(rate), float(iteration))))

    def _view(self) -> np.ndarray:
        """The rows as they are now: a view where they are contiguous and cannot change meanwhile, else a copy."""
        first, _, n_elems = self.index.runs[0].tolist()
        if self.index.is_slice and not self._worker.slack:
            rows = self._values[first : first + n_elems]
        else:
            if not self._copy.size:
                self._copy = np.empty(self.index.n_elems, self._values.dtype)
            gather_runs(self._values, self.index.runs, self._copy)
            rows = self._copy.view()
        rows.flags.writeable = False
        return rows.reshape(self.shape)
