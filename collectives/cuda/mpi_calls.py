"""The MPI library's own blocking collectives on device buffers: algorithm `mpi`, for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.cupy_types import DeviceArray
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.messages.start_queue import wait_until
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.runtime.mpi_calls import MpiCalls

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class AwareCalls(MpiCalls):
    """A CUDA-aware library's calls, straight on device memory.

    The host waits for the communication stream before each call, since MPI knows nothing of streams.
    """

    def __init__(self, comm: Intracomm, streams: Streams, backs_off: bool) -> None:
        """Args:
            comm: nobody else uses it from another thread at the same time.
            streams: of the engine that calls.
            backs_off: waits for the device sleep between polls.
        """
        super().__init__(comm)
        self._streams, self._backs_off = streams, backs_off
        self._spare: Any = None

    def run(self, collective: str, source: Any, array: Any, op: str, root: int) -> None:
        """See MpiCalls. `source` and `array`: flat CuPy arrays."""
        self._wait()
        super().run(collective, source, array, op, root)

    def _copy(self, array: Any) -> Any:
        if self._spare is None or self._spare.nbytes < array.nbytes:
            self._spare = device.load().empty(array.nbytes, np.uint8)
        copy = self._spare[: array.nbytes].view(array.dtype)
        copy[...] = array
        self._wait()
        return copy

    def _wait(self) -> None:
        wait_until(Point.now(self._streams.comm).is_reached, self._backs_off)


class StagedCalls:
    """Any library's calls: the buffer is copied to pinned host memory, reduced there, and copied back."""

    fault = ""

    def __init__(self, comm: Intracomm, streams: Streams, backs_off: bool) -> None:
        """Args: as AwareCalls has them."""
        self._calls, self._streams, self._backs_off = MpiCalls(comm), streams, backs_off
        self._given, self._got = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def run(self, collective: str, source: DeviceArray, array: DeviceArray, op: str, root: int) -> None:
        """See MpiCalls. `source` and `array`: flat CuPy arrays."""
        self._given = self._grown(self._given, array.nbytes)
        given: np.ndarray = self._given[: array.nbytes].view(array.dtype)
        got = given if source is array else self._result(array)
        source.get(out=given, stream=self._streams.comm, blocking=False)
        wait_until(Point.now(self._streams.comm).is_reached, self._backs_off)
        self._calls.run(collective, given, got, op, root)
        array.set(got, stream=self._streams.comm)

    def _result(self, array: DeviceArray) -> np.ndarray:
        """Host memory with the values of `array`: what the collective does not write stays as it is."""
        self._got = self._grown(self._got, array.nbytes)
        got: np.ndarray = self._got[: array.nbytes].view(array.dtype)
        array.get(out=got, stream=self._streams.comm, blocking=False)
        return got

    def _grown(self, spare: np.ndarray, n_bytes: int) -> np.ndarray:
        if spare.nbytes >= n_bytes:
            return spare
        wait_until(Point.now(self._streams.comm).is_reached, self._backs_off)  # copies from the shorter one have ended
        return device.pinned(n_bytes)
