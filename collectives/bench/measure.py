"""Verifies and times one collective by one algorithm on one buffer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scaffe.collectives.bench.payload import Payload
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.request import Request


@dataclass(frozen=True)
class Column:
    """What one column of the table measures. ``chunk_bytes``: 0 for the default; ``is_in_place``: call the library's
    own reductions in place, as `auto` does; else from another buffer, as OSU does."""

    case: str
    title: str
    algorithm: str
    chunk_bytes: int
    root: int
    is_in_place: bool = False


class Runner:
    """Calls one column's collective on given buffers."""

    def __init__(self, communicator: Communicator, column: Column, buffer: Any, other: Any,
                 synchronize: Callable[[], None] = lambda: None) -> None:
        """``other``: like `buffer`; the library's own reductions read from it, unless the column is in place;
        ``synchronize``: returns when the device has done what a call has queued there."""
        self.title, self._synchronize = column.title, synchronize
        self._communicator, self._column = communicator, column
        self._case = CASES[column.case]
        self.buffer = buffer
        self._separate = parse(column.algorithm).library == "mpi" and self._case.reduces and not column.is_in_place
        self._source = other if self._separate else buffer
        how = {"algorithm": column.algorithm, "chunk_bytes": column.chunk_bytes}
        if self._case.takes_root:
            how["root"] = column.root
        if self._separate:
            how["out"] = buffer
        self._how = how

    def start(self, is_blocking: bool) -> Callable[[], Request | None]:
        """Returns a call that runs the collective once, or starts it and returns its request."""
        method = getattr(self._communicator, self._column.case if is_blocking else f"i{self._column.case}")
        source, how, synchronize = self._source, self._how, self._synchronize

        def run() -> None:
            method(source, **how)
            synchronize()
        return run if is_blocking else lambda: _SynchronizingRequest(method(source, **how), synchronize)

    def verify(self, payload: Payload, is_blocking: bool) -> None:
        """Runs the collective on known values. All ranks call it. Raises CommError on every rank, when an element is
        wrong on any."""
        payload.fill(self._source, self._communicator.rank)
        request = self.start(is_blocking)()
        if request is not None:
            request.wait()
        rows = self._case.expected(self._communicator, self.buffer.size, self._column.root)
        wrong = self._communicator.allgather_objects(sum(payload.n_wrong(self.buffer, *row) for row in rows))
        if any(wrong):
            raise CommError(f"{self._column.case} by {self._column.title}, {self.buffer.nbytes} bytes: {sum(wrong)} "
                            f"wrong elements on ranks {[rank for rank, n in enumerate(wrong) if n]}", everywhere=True)


class _SynchronizingRequest(Request):
    """A request whose wait returns when the device is done too."""

    def __init__(self, request: Request, synchronize: Callable[[], None]) -> None:
        super().__init__("")
        self._request, self._synchronize = request, synchronize

    def wait(self, timeout: float | None = None, stream: Any = None) -> None:
        self._request.wait(timeout, stream)
        self._synchronize()


def time_call(communicator: Communicator, call: Callable[[], object], n_warm: int, n_timed: int) -> np.ndarray:
    """Times a call. All ranks call it, and meet before each call. Returns float64, shape (n_timed,): seconds of the
    slowest rank."""
    seconds = np.zeros(n_timed)
    for index in range(-n_warm, n_timed):
        communicator.barrier()
        started = time.perf_counter()
        call()
        if index >= 0:
            seconds[index] = time.perf_counter() - started
    slowest: np.ndarray = np.max(communicator.allgather_objects(seconds), axis=0)
    return slowest


def time_in_turns(communicator: Communicator, calls: Sequence[Callable[[], object]], n_warm: int, n_timed: int,
                  n_rounds: int) -> list[np.ndarray]:
    """Times several calls that take turns, so that a change in the machine's speed meets all of them.

    Args:
        n_warm: calls before timing, in each round.
        n_timed: timed calls of each, over all rounds.

    Returns:
        For each call float64, shape (n_rounds, n_timed / n_rounds rounded up): seconds of the slowest rank.
    """
    share = -(-n_timed // n_rounds)
    rounds = [[time_call(communicator, call, n_warm, share) for call in calls] for _ in range(n_rounds)]
    return [np.array(parts) for parts in zip(*rounds, strict=True)]


def undisturbed(rounds: np.ndarray) -> float:
    """Returns the median of the fastest round (rows of `rounds`): the time while the machine does little else."""
    return float(np.median(rounds, axis=1).min())


Row = tuple[int, int, int | None]
"""Elements [start, stop) must be the values of a rank, or with None the sum over ranks."""


class Case(NamedTuple):
    """One collective. ``expected``: gives the rows for this rank, from the communicator, the elements of the whole
    buffer and the root; elements in no row may be anything."""

    expected: Callable[[Communicator, int, int], list[Row]]
    takes_root: bool
    reduces: bool


def _allgather(communicator: Communicator, n_elems: int, root: int) -> list[Row]:
    parts = [(communicator.part(n_elems, rank), rank) for rank in range(communicator.n_ranks)]
    return [(part.start, part.stop, rank) for part, rank in parts]


def _reduce_scatter(communicator: Communicator, n_elems: int, root: int) -> list[Row]:
    part = communicator.part(n_elems)
    return [(part.start, part.stop, None)]


CASES = {
    "allgather": Case(_allgather, takes_root=False, reduces=False),
    "allreduce": Case(lambda communicator, n_elems, root: [(0, n_elems, None)], takes_root=False, reduces=True),
    "bcast": Case(lambda communicator, n_elems, root: [(0, n_elems, root)], takes_root=True, reduces=False),
    "reduce": Case(lambda communicator, n_elems, root: [(0, n_elems, None)] if communicator.rank == root else [],
                   takes_root=True, reduces=True),
    "reduce_scatter": Case(_reduce_scatter, takes_root=False, reduces=True),
}
"""By name. The message size of those by parts is that of the whole buffer."""
