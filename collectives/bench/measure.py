"""One collective by one algorithm on one buffer: verified, then timed."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..communicator import Communicator
from ..errors import CommError
from ..request import Request
from .payload import Payload


@dataclass(frozen=True)
class Column:
    """What one column of the table measures."""

    case: str
    title: str
    algorithm: str
    chunk_bytes: int
    root: int


class Runner:
    """Calls one column's collective on given buffers."""

    def __init__(self, communicator: Communicator, column: Column, buffer: np.ndarray, other: np.ndarray) -> None:
        """`buffer`: worked on in place; `other`: where the library's own reductions read from, as OSU has it."""
        self._communicator, self._column = communicator, column
        self._case = importlib.import_module(f".cases.{column.case}", __package__)
        self.buffer = buffer
        self._separate = column.algorithm == "mpi" and self._case.REDUCES
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
        source, how = self._source, self._how
        return lambda: method(source, **how)

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


def time_call(communicator: Communicator, call: Callable[[], object], n_warm: int, n_timed: int) -> np.ndarray:
    """Seconds of the slowest rank for each of `n_timed` calls; all ranks meet before each."""
    seconds = np.zeros(n_timed)
    for index in range(-n_warm, n_timed):
        communicator.barrier()
        started = time.perf_counter()
        call()
        if index >= 0:
            seconds[index] = time.perf_counter() - started
    return np.max(communicator.allgather_objects(seconds), axis=0)
