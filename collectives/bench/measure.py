"""One collective by one algorithm on one buffer: verified, then timed."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.collectives.bench.payload import Payload
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.request import Request


@dataclass(frozen=True)
class Column:
    """What one column of the table measures."""

    case: str
    title: str
    algorithm: str
    chunk_bytes: int
    root: int
    is_in_place: bool = False
    """The library's own reductions too, as `auto` calls them; otherwise from another buffer, as OSU has it."""


class Runner:
    """Calls one column's collective on given buffers."""

    def __init__(self, communicator: Communicator, column: Column, buffer: Any, other: Any,
                 settle: Callable[[], None] = lambda: None) -> None:
        """`buffer`: worked on in place; `other`: where the library's own reductions read from, as OSU has it.

        settle: returns when the device has done what a call has queued there.
        """
        self._settle = settle
        self._communicator, self._column = communicator, column
        self._case = importlib.import_module(f".cases.{column.case}", __package__)
        self.buffer = buffer
        self._separate = parse(column.algorithm).library == "mpi" and self._case.REDUCES and not column.is_in_place
        self._source = other if self._separate else buffer
        how = {"algorithm": column.algorithm, "chunk_bytes": column.chunk_bytes}
        if self._case.TAKES_ROOT:
            how["root"] = column.root
        if self._separate:
            how["out"] = buffer
        self._how = how

    def start(self, is_blocking: bool) -> Callable[[], Request | None]:
        """A call that runs (or starts) the collective once."""
        method = getattr(self._communicator, self._column.case if is_blocking else f"i{self._column.case}")
        source, how, settle = self._source, self._how, self._settle

        def run() -> None:
            method(source, **how)
            settle()
        return run if is_blocking else lambda: _Settling(method(source, **how), settle)

    def verify(self, payload: Payload, is_blocking: bool) -> None:
        """Run on known values. Raises CommError, on every rank, when an element is wrong on any."""
        payload.fill(self._source, self._communicator.rank)
        request = self.start(is_blocking)()
        if request is not None:
            request.wait()
        rows = self._case.expected(self._communicator, self.buffer.size, self._column.root)
        wrong = self._communicator.allgather_objects(sum(payload.n_wrong(self.buffer, *row) for row in rows))
        if any(wrong):
            raise CommError(f"{self._column.case} by {self._column.title}, {self.buffer.nbytes} bytes: {sum(wrong)} "
                            f"wrong elements on ranks {[rank for rank, n in enumerate(wrong) if n]}", everywhere=True)


class _Settling(Request):
    """A request whose wait is over when the device is done too."""

    def __init__(self, request: Request, settle: Callable[[], None]) -> None:
        super().__init__("")
        self._request, self._settle = request, settle

    def wait(self, timeout: float | None = None, stream: Any = None) -> None:
        """See Request."""
        self._request.wait(timeout, stream)
        self._settle()


def time_call(communicator: Communicator, call: Callable[[], object], n_warm: int, n_timed: int) -> np.ndarray:
    """Seconds of the slowest rank for each of `n_timed` calls; all ranks meet before each."""
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
    """For each call seconds of the slowest rank, (n_rounds, n_timed / n_rounds or one more); calls take turns."""
    share = -(-n_timed // n_rounds)
    rounds = [[time_call(communicator, call, n_warm, share) for call in calls] for _ in range(n_rounds)]
    return [np.array(parts) for parts in zip(*rounds)]


def undisturbed(rounds: np.ndarray) -> float:
    """The median of the fastest round: what a call takes while the machine does little else."""
    return float(np.median(rounds, axis=1).min())
