"""Rows that a worker reads and updates together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scaffe.collectives.server.memory.common import InMemory
from scaffe.collectives.server.tables.table import Index
from scaffe.collectives.server.workers.buffers import Rows, Updates
from scaffe.collectives.server.workers.sequence import BatchHandle, Recorder
from scaffe.collectives.server.workers.worker import Worker


class Batch(BatchHandle):
    """Rows of one table that a worker reads and updates together; ``ParameterServer.batch`` makes one.

    With buffers in device memory every call concerns the caller's current stream: what it has been given before
    ``post_read`` and ``update`` is what these follow.

    Attributes:
        memory: where the read and the update buffer are, "host" or "device".
        positions: in device memory, where the index's rows are in the table's order: for each row of the buffers its
            place among them; None where the orders are the same.
    """

    def __init__(self, number: int, index: Index, recorder: Recorder, memory: str = "host",
                 positions: np.ndarray | None = None) -> None:
        super().__init__(number, index, recorder)
        self.memory, self.positions = memory, positions
        self._reads, self._updates = f"rows of table {index.table.name!r}", (
            f"its last update of table {index.table.name!r} to be applied")
        self._rows: Rows
        self._update: Updates

    def bind(self, worker: Worker, rows: Rows, update: Updates, tier: InMemory) -> None:
        """Attach the batch to its worker and its memory.

        Args:
            worker: the worker that sends, receives and copies for this batch.
            rows: what ``read`` lends.
            update: what ``pre_update`` lends.
            tier: where table and updates lie.
        """
        self._worker, self._rows, self._update, self._tier = worker, rows, update, tier

    def chunks(self, lent: np.ndarray) -> Iterator[slice]:
        """Slices in which to go through what ``read`` or ``pre_update`` has lent, (n_keys, row_elems) as one flat row:
        one for all, but of tables in a file pieces, each of which leaves memory after its turn."""
        self._working()
        return self._tier.chunks(lent)

    def prefetch(self) -> None:
        """Ask for the rows without waiting for them. ``clock`` does so by itself for rows read in that iteration."""
        self._working().prefetch([self.number])

    def is_ready(self) -> bool:
        """Whether ``read(prefetched=True)`` would not wait, after ``prefetch``, maybe in an earlier iteration."""
        return self._working().is_ready(self.number)

    def is_free(self) -> bool:
        """Whether ``pre_update`` would not wait."""
        return self._working().is_free(self.number)

    def read(self, newest: bool = False, prefetched: bool = False) -> np.ndarray:
        """Wait until the rows are as new as the slack asks for.

        Args:
            newest: wait for all workers' updates of all iterations before this one, whatever the slack.
            prefetched: what ``prefetch`` asked for in an earlier iteration will do, if it has come and is new enough.
                This worker's own updates since then may be missing.

        Returns:
            (n_keys, row_elems), read-only, valid until ``post_read``. With slack 0 the values cannot change before
            then, so rows that are contiguous in the table are returned as a view and not copied. In device memory it
            is a CuPy array, whose values the current stream finds there.

        Raises:
            CommError: the batch is being read already, or a rank is lost or late.
        """
        self._working().read(self.number, self._reads, newest, prefetched)
        self._note("read", moves=True)
        return self._rows.lend()

    def post_read(self) -> None:
        """Give the rows back. Raises CommError where they are not being read."""
        self._working().post_read(self.number)
        self._rows.give_back()
        self._note("post_read", moves=False)

    def pre_update(self) -> np.ndarray:
        """Wait until the last update has been applied.

        Returns:
            The update buffer, (n_keys, row_elems), uninitialised: the caller fills all of it.

        Raises:
            CommError: the buffer has been given out already, or a rank is lost or late.
        """
        self._working().pre_update(self.number, self._updates)
        self._note("pre_update", moves=False)
        return self._update.lend()

    def update(self, rate: float = 1.0, iteration: float = 0) -> None:
        """Hand the filled buffer to the shards, which apply it asynchronously: this call does not wait for them.

        Args:
            rate: learning rate, passed to the table's rule.
            iteration: iterations done before this one, passed to the table's rule.

        Raises:
            CommError: ``pre_update`` was not called first.
        """
        self._working().update(self.number, (float(rate), float(iteration)), self._update)
        self._note("update", moves=True)
