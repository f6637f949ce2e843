"""NCCL's collectives behind our signatures: algorithm `nccl`, for comparison, where CuPy can load NCCL."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.cupy_types import DeviceArray
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import partition

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

TYPES = {"float32": "FLOAT32", "float64": "FLOAT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "int32": "INT32",
         "int64": "INT64"}


class NcclCalls:
    """Collectives on the communication stream; NCCL orders them itself, the host waits for nothing.

    Attributes:
        fault: why these ranks cannot use NCCL, in one line; empty where they can.
    """

    def __init__(self, comm: Intracomm, streams: Streams) -> None:
        """All ranks of `comm` call it. NCCL itself starts with the first collective.

        Args:
            comm: the ranks that take part.
            streams: of the engine that calls.
        """
        self._comm, self._streams = comm, streams
        self._nccl: Any = None
        self._communicator: Any = None
        self.fault = _fault(comm.allgather(_location(streams.number)))

    def run(self, collective: str, source: DeviceArray, array: DeviceArray, op: str, root: int) -> None:
        """See MpiCalls. `source` and `array`: flat CuPy arrays."""
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
            start, stop = partition.bounds(rank, self._comm.size, array.size)
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
