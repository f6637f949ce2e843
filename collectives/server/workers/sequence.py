"""The calls of one iteration, in order: gathered in a virtual iteration or in the first real one. Pure.

After GeePS (Cui et al., EuroSys 2016, 4.1): training repeats the same sequence of operations, so that what comes next
is known: what to fetch ahead, and which buffers are in use when.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


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
