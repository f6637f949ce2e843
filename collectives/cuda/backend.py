"""The backend of device memory for one engine, and the MPI library's own collectives on it: algorithm `mpi`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.cupy_types import DeviceArray
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.messages.message import wait_until
from scaffe.collectives.cuda.messages.transport import DeviceWire
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import Algorithm
from scaffe.collectives.runtime.backend import Backend, Call
from scaffe.collectives.runtime.mpi_calls import MpiCalls
from scaffe.collectives.transport.transport import Transport

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


REDUCTIONS = ("reduce", "allreduce", "reduce_scatter")


class DeviceBackend(Backend):
    """Device memory for one engine (see runtime.backend)."""

    def __init__(self, streams: Streams, no_ipc: str, **parts: Any) -> None:
        """``no_ipc``: why the node's ranks cannot map one another's memory; empty where they can."""
        super().__init__(**parts)
        self.streams, self._no_ipc = streams, no_ipc

    def fault(self, algorithm: Algorithm) -> str:
        if algorithm.is_shared and self._no_ipc:
            return f"algorithm '{algorithm}' needs CUDA IPC between the ranks of a node: {self._no_ipc}"
        if algorithm.is_doubled:
            return f"algorithm '{algorithm}' is for host memory"
        return super().fault(algorithm)

    def refuse_on_helper(self, collective: str, algorithm: Algorithm) -> None:
        """See Backend. MPI libraries' non-blocking reductions crash on device buffers (open-mpi/ompi#12045)."""
        if algorithm.library == "mpi" and collective in REDUCTIONS:
            raise CommError(f"a non-blocking {collective} of a device buffer cannot be the MPI library's own: "
                            "use auto or an algorithm of ours", everywhere=True)

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source

    def wired(self, wire: str) -> Transport:
        return DeviceWire(self.transport, wire)


class AwareCalls(MpiCalls):
    """A CUDA-aware library's calls, straight on device memory.

    The host waits for the communication stream before each call, since MPI knows nothing of streams.
    """

    def __init__(self, comm: Intracomm, streams: Streams, backs_off: bool) -> None:
        """``comm``: nobody else uses it from another thread at the same time; ``backs_off``: waits for the device sleep
        between polls."""
        super().__init__(comm)
        self._streams, self._backs_off = streams, backs_off
        self._spare: Any = None

    def of(self, collective: str) -> Call:
        call = super().of(collective)

        def behind_the_stream(source: Any, array: Any, op: str, root: int) -> None:
            self._wait()
            call(source, array, op, root)
        return behind_the_stream

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
        self._calls, self._streams, self._backs_off = MpiCalls(comm), streams, backs_off
        self._given, self._got = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def of(self, collective: str) -> Call:
        return partial(self._run, collective)

    def _run(self, collective: str, source: DeviceArray, array: DeviceArray, op: str, root: int) -> None:
        self._given = self._grown(self._given, array.nbytes)
        given: np.ndarray = self._given[: array.nbytes].view(array.dtype)
        got = given if source is array else self._result(array)
        source.get(out=given, stream=self._streams.comm, blocking=False)
        wait_until(Point.now(self._streams.comm).is_reached, self._backs_off)
        self._calls.of(collective)(given, got, op, root)
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
