"""Rows that a worker reads and updates together, and the recorder of the calls of one iteration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.server.memory.common import InMemory
from scaffe.collectives.server.tables.table import Index
from scaffe.collectives.server.workers.buffers import Rows, Updates
from scaffe.collectives.server.workers.worker import Worker


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of an iteration; its place in the sequence is its index.

    Attributes:
        call: "read", "post_read", "pre_update", "update" or "clock".
        table: the table's name; empty for a clock.
        batch: the batch's number among those of shared tables, or among those of local tables.
        n_bytes: length of the batch's buffer.
        moves: whether values are brought into the buffer (read, pre_update) or taken from it (post_read, update).
        seconds: time since the iteration began; 0 in a virtual iteration.
    """

    call: str
    table: str = ""
    batch: int = -1
    n_bytes: int = 0
    is_local: bool = False
    moves: bool = False
    seconds: float = 0.0


class Recorder:
    """Notes the calls of one iteration, and nothing after it.

    Attributes:
        sequence: the iteration's operations; empty until its end.
    """

    def __init__(self) -> None:
        self.is_on, self.sequence = False, tuple[Operation, ...]()
        self._now, self._began, self._noted = time.monotonic, 0.0, list[Operation]()

    def begin(self, now: Callable[[], float] = time.monotonic) -> None:
        """Begin to note the calls of an iteration, unless one has been noted. ``now`` tells the time in seconds."""
        self.is_on, self._now, self._began, self._noted = not self.sequence, now, now(), []

    def note(self, call: str, table: str, batch: int, n_bytes: int, is_local: bool, moves: bool) -> None:
        """Note one call; see Operation."""
        self._noted.append(Operation(call, table, batch, n_bytes, is_local, moves, self._now() - self._began))

    def end(self) -> None:
        """The iteration has ended."""
        if self.is_on:
            self.note("clock", "", -1, 0, is_local=False, moves=False)
            self.is_on, self.sequence = False, tuple(self._noted)


def reads_ahead(sequence: tuple[Operation, ...]) -> list[int]:
    """The shared batches that an iteration reads, in the order in which it first reads them."""
    return list(dict.fromkeys(step.batch for step in sequence if step.call == "read" and not step.is_local))


class BatchHandle:
    """Rows of one table, used through a worker from ``start`` to ``close``.

    Attributes:
        number: among the worker's batches of its kind.
        shape: shape of the batch's buffers, (n_keys, row_elems).
        n_bytes: length of each of them.
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

    def _working(self) -> Worker:
        if self._worker is None:
            raise CommError(f"a batch of table {self.index.table.name!r} is used before start, or on a rank that does "
                            "not work")
        return self._worker

    def _note(self, call: str, moves: bool) -> None:
        if self._recorder.is_on:
            self._recorder.note(call, self.index.table.name, self.number, self.n_bytes, self.is_local, moves)


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
        """Attach the batch to its worker and its memory."""
        self._worker, self._rows, self._update, self._tier = worker, rows, update, tier

    def chunks(self, lent: np.ndarray) -> Iterator[slice]:
        """Slices in which to go through what ``read`` or ``pre_update`` has lent, (n_keys, row_elems) as one flat row:
        one for all; of tables in a file several, each of which is released after its turn."""
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
