"""The MPI library's own blocking collectives on device buffers: algorithm `mpi`, a peer to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.lane import Lane
from scaffe.collectives.cuda.lineup import wait_until
from scaffe.collectives.runtime.mpi_calls import MpiCalls


class AwareCalls(MpiCalls):
    """A CUDA-aware library, on device memory as it is; the host waits for the communication stream before each call."""

    def __init__(self, comm: Any, lane: Lane, patient: bool) -> None:
        super().__init__(comm)
        self._lane, self._patient = lane, patient
        self._kept: Any = None

    def run(self, collective: str, source: Any, array: Any, op: str, root: int) -> None:
        """See MpiCalls. `source` and `array`: flat CuPy arrays."""
        self._wait()
        super().run(collective, source, array, op, root)

    def _copy(self, array: Any) -> Any:
        if self._kept is None or self._kept.nbytes < array.nbytes:
            self._kept = device.load().empty(array.nbytes, np.uint8)
        copy = self._kept[: array.nbytes].view(array.dtype)
        copy[...] = array
        self._wait()
        return copy

    def _wait(self) -> None:
        wait_until(Point.now(self._lane.stream).is_reached, self._patient)


class StagedCalls:
    """Any library, on host memory: the buffer is copied to pinned memory, reduced there, and copied back."""

    fault = ""

    def __init__(self, comm: Any, lane: Lane, patient: bool) -> None:
        self._calls, self._lane, self._patient = MpiCalls(comm), lane, patient
        self._given, self._got = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def run(self, collective: str, source: Any, array: Any, op: str, root: int) -> None:
        """See MpiCalls. `source` and `array`: flat CuPy arrays."""
        self._given = self._grown(self._given, array.nbytes)
        given = self._given[: array.nbytes].view(array.dtype)
        got = given if source is array else self._result(array)
        source.get(out=given, stream=self._lane.stream, blocking=False)
        wait_until(Point.now(self._lane.stream).is_reached, self._patient)
        self._calls.run(collective, given, got, op, root)
        array.set(got, stream=self._lane.stream)

    def _result(self, array: Any) -> np.ndarray:
        """Host memory like `array`, with its values: what the collective leaves alone stays as it is."""
        self._got = self._grown(self._got, array.nbytes)
        got = self._got[: array.nbytes].view(array.dtype)
        array.get(out=got, stream=self._lane.stream, blocking=False)
        return got

    def _grown(self, kept: np.ndarray, n_bytes: int) -> np.ndarray:
        if kept.nbytes >= n_bytes:
            return kept
        wait_until(Point.now(self._lane.stream).is_reached, self._patient)  # copies from the shorter memory have ended
        return device.pinned(n_bytes)
