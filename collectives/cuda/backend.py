"""The backend of device memory for one engine: its streams, messages, kernels and libraries."""

from __future__ import annotations

from typing import Any

from scaffe.collectives.cuda.cupy_types import DeviceArray
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.messages.transport import DeviceWire
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import Algorithm
from scaffe.collectives.planning.levels import Part
from scaffe.collectives.runtime.backend import Backend
from scaffe.collectives.transport.transport import Transport

REDUCTIONS = ("reduce", "allreduce", "reduce_scatter")


class DeviceBackend(Backend):
    """Device memory for one engine (see runtime.backend)."""

    def __init__(self, streams: Streams, no_ipc: str, **parts: Any) -> None:
        """Args:
            streams: of the engine.
            no_ipc: why the node's ranks cannot map one another's memory; empty where they can.
            parts: what Backend takes.
        """
        super().__init__(**parts)
        self._streams, self._no_ipc = streams, no_ipc

    def fault(self, algorithm: Algorithm) -> str:
        """See Backend."""
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

    def point(self, after: Any) -> Point:
        """See Backend."""
        return Point.of(after)

    def copy(self, target: Any, source: Any) -> None:
        """See Backend."""
        target[...] = source

    def wired(self, wire: str) -> Transport:
        """See Backend."""
        return DeviceWire(self.transport, wire)

    def begin(self, after: Any) -> None:
        """See Backend."""
        self._streams.begin(after)

    def end(self) -> Any:
        """See Backend."""
        return self._streams.end()

    def abandon(self) -> None:
        """See Backend."""
        self._streams.leave()


class NoNode:
    """Stands in for a node whose ranks cannot map one another's memory: `DeviceBackend.fault` says why."""

    how = ""

    def run(self, collective: str, array: DeviceArray, op: str = "sum", root: int = 0,
            parts: tuple[Part, ...] = ()) -> None:
        """See runtime.backend.Node."""
        raise CommError(f"{collective}: no CUDA IPC between the ranks of this node")
