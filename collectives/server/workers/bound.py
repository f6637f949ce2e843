"""What batches of shared and of local tables have in common: their rows, and the worker that they are bound to."""

from __future__ import annotations

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.server.tables.table import Index
from scaffe.collectives.server.workers.sequence import Recorder
from scaffe.collectives.server.workers.worker import Worker


class BoundBatch:
    """Rows of one table, used through a worker from ``start`` to ``close``.

    Attributes:
        number: among the worker's batches of its kind.
        index: where the rows lie in the table.
        shape: shape of the batch's buffers, (n_keys, row_elems).
        n_bytes: length of each of them.
        is_local: whether the table is the worker's own.
    """

    is_local = False

    def __init__(self, number: int, index: Index, recorder: Recorder) -> None:
        self.number, self.index, self._recorder = number, index, recorder
        self.shape = (index.n_rows, index.table.row_elems)
        self.n_bytes = index.n_elems * np.dtype(index.table.dtype).itemsize
        self._worker: Worker | None = None

    def unbind(self) -> None:
        """Detach the batch from its worker again."""
        self._worker = None

    def _bound(self) -> Worker:
        if self._worker is None:
            raise CommError(f"a batch of table {self.index.table.name!r} is used before start, or on a rank that does "
                            "not work")
        return self._worker

    def _note(self, call: str, moves: bool) -> None:
        if self._recorder.is_on:
            self._recorder.note(call, self.index.table.name, self.number, self.n_bytes, self.is_local, moves)
