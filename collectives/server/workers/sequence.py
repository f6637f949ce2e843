"""The calls of one iteration, in order: gathered in a virtual iteration or in the first real one. Pure.

After GeePS (Cui et al., EuroSys 2016, 4.1): training repeats the same sequence of operations, so that what comes next
is known: what to fetch ahead, and which buffers are in use when.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.server.tables.table import Index
from scaffe.collectives.server.workers.worker import Worker


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of an iteration; its place in the sequence is its index.

    Attributes:
        call: "read", "post_read", "pre_update", "update" or "clock".
        table: the table's name; empty for a clock.
        batch: the batch's number among those of shared tables, or among those of local tables.
        n_bytes: length of the batch's buffer.
        is_local: whether the table is local.
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
        is_on: whether it notes calls.
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

    def _working(self) -> Worker:
        if self._worker is None:
            raise CommError(f"a batch of table {self.index.table.name!r} is used before start, or on a rank that does "
                            "not work")
        return self._worker

    def _note(self, call: str, moves: bool) -> None:
        if self._recorder.is_on:
            self._recorder.note(call, self.index.table.name, self.number, self.n_bytes, self.is_local, moves)
