"""The backend of device memory for one engine, and libraries' own collectives on it: algorithms `mpi` and `nccl`."""

from __future__ import annotations

import platform
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
from scaffe.collectives.planning import plan
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


TYPES = {"float32": "FLOAT32", "float64": "FLOAT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "int32": "INT32",
         "int64": "INT64"}


class NcclCalls:
    """Collectives on the communication stream; NCCL orders them itself, the host waits for nothing. ``fault``: why
    these ranks cannot use NCCL, in one line; empty where they can."""

    def __init__(self, comm: Intracomm, streams: Streams) -> None:
        """All ranks of `comm` call it. NCCL itself starts with the first collective."""
        self._comm, self._streams = comm, streams
        self._nccl: Any = None
        self._communicator: Any = None
        self.fault = _fault(comm.allgather(_location(streams.number)))

    def of(self, collective: str) -> Call:
        return partial(self._run, collective)

    def _run(self, collective: str, source: DeviceArray, array: DeviceArray, op: str, root: int) -> None:
        if self._communicator is None:
            self._start()
        kind = getattr(self._nccl, f"NCCL_{TYPES[array.dtype.name]}")
        how = (kind, getattr(self._nccl, f"NCCL_{op.upper()}"), self._streams.comm.ptr)
        given, got, n_elems = source.data.ptr, array.data.ptr, array.size
        if collective == "bcast":
            self._communicator.broadcast(got, got, n_elems, kind, root, self._streams.comm.ptr)
        elif collective == "reduce":
            self._communicator.reduce(given, got, n_elems, kind, how[1], root, how[2])
        elif collective == "allreduce":
            self._communicator.allReduce(given, got, n_elems, *how)
        else:
            self._by_parts(collective, given, got, array, how)

    def _by_parts(self, collective: str, given: int, got: int, array: DeviceArray, how: tuple[int, int, int]) -> None:
        """One rooted call per rank's part, in one group: NCCL's own calls want parts of equal length."""
        kind, op, stream = how
        self._nccl.groupStart()
        for rank in range(self._comm.size):
            start, stop = plan.bounds(rank, self._comm.size, array.size)
            at, n_elems = start * array.itemsize, stop - start
            if collective == "allgather":
                self._communicator.broadcast(got + at, got + at, n_elems, kind, rank, stream)
            else:
                self._communicator.reduce(given + at, got + at, n_elems, kind, op, rank, stream)
        self._nccl.groupEnd()

    def _start(self) -> None:
        self._nccl = device.load_nccl()
        identity = self._comm.bcast(self._nccl.get_unique_id() if self._comm.rank == 0 else None)
        self._communicator = self._nccl.NcclCommunicator(self._comm.size, identity, self._comm.rank)


def _location(number: int) -> tuple[str, str, str]:
    """This rank's machine, its GPU's PCI bus id, and why NCCL cannot be loaded (empty where it can)."""
    try:
        device.load_nccl()
        missing = ""
    except CommError as error:
        missing = str(error)
    return platform.node(), device.card(number), missing


def _fault(locations: list[tuple[str, str, str]]) -> str:
    """Why these ranks cannot use NCCL, in one line; empty where they can."""
    first: dict[tuple[str, str], int] = {}
    for rank, (node, bus, missing) in enumerate(locations):
        if missing:
            return f"algorithm nccl, rank {rank}: {missing}"
        other = first.setdefault((node, bus), rank)
        if other != rank:
            return f"algorithm nccl: NCCL refuses two ranks on one GPU; ranks {other} and {rank} share {bus} of {node}"
    return ""
