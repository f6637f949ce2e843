"""What the ranks of a job set up, together, before their first collective on device buffers."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.ipc.node import DeviceNode
from scaffe.collectives.cuda.ipc.signals import signals
from scaffe.collectives.cuda.ipc.windows import DeviceWindows
from scaffe.collectives.cuda.kernels import MOST_RANKS
from scaffe.collectives.cuda.messages import aware
from scaffe.collectives.cuda.messages.start_queue import wait_until
from scaffe.collectives.cuda.messages.transport import AwareTransport, StagedTransport
from scaffe.collectives.cuda.messages.wire import DeviceWire
from scaffe.collectives.cuda.mpi_calls import AwareCalls, StagedCalls
from scaffe.collectives.cuda.nccl_calls import NcclCalls
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import Algorithm, parse
from scaffe.collectives.runtime.backend import Backend
from scaffe.collectives.runtime.shared_levels import SharedLevels
from scaffe.collectives.runtime.signature import CallSignature
from scaffe.collectives.shared.node import NodeGroup
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport.transport import Transport
from scaffe.collectives.tuning.device_choice import choose_on_device
from scaffe.collectives.tuning.table import TuningTable

REDUCTIONS = ("reduce", "allreduce", "reduce_scatter")
IPC_VARIABLE = "SCAFFE_CUDA_IPC"
LAST_WORK_SECONDS = 10
"""How long a rank that ends waits for what its collectives have queued, which its peers may be waiting for."""


class DeviceBackend(Backend):
    """One engine's communication stream and all that works on it."""

    def __init__(self, streams: Streams, no_ipc: str, **parts: Any) -> None:
        """`no_ipc`: why the node's ranks cannot map one another's memory; empty where they can."""
        super().__init__(**parts)
        self._streams, self._no_ipc = streams, no_ipc

    def fault(self, algorithm: Algorithm) -> str:
        """See Backend."""
        if algorithm.is_shared and self._no_ipc:
            return f"algorithm '{algorithm}' needs CUDA IPC between the ranks of a node: {self._no_ipc}"
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


class _NoNode:
    """Ranks that cannot map one another's memory: `fault` has refused what would come here."""

    how = ""

    def run(self, collective: str, array: Any, op: str = "sum", root: int = 0) -> None:
        """See shared_levels.Node."""
        raise CommError(f"{collective}: no CUDA IPC between the ranks of this node")


class Device:
    """A rank's GPU as the ranks of a job use it: the same on every rank, but for the CUDA device itself."""

    def __init__(self, comm: Any, node_comm: Any, topology: Topology) -> None:
        """All ranks call it, and have the device that they will use as the current one. `node_comm`: the ranks of
        this rank's node; both communicators are not used by another thread meanwhile."""
        self._comm, self._node_comm, self._topology = comm, node_comm, topology
        self._is_crowded = node_comm.size > len(os.sched_getaffinity(0))
        self.number = device.load().cuda.Device().id
        self._all_streams: list[Streams] = []
        self._how: list[str] = []
        self._cards = node_comm.allgather(device.card(self.number))
        self.windows = DeviceWindows(node_comm, self._settle, f"rank {comm.rank}")
        self.no_ipc = self._agreed(self._refusal()) or self._agreed(self._try_ipc())
        self.is_aware = aware.is_cuda_aware()
        self._complete = lru_cache(maxsize=4096)(self._completed)
        if not self.no_ipc:
            atexit.register(self._finish)

    def backend(self, comm: Any, group: NodeGroup, patient: bool) -> DeviceBackend:
        """For one engine, on `comm`, which only it uses; all ranks call it. `group`: where its host threads meet.

        `patient`: its waits leave the core to others, as they do where a node has more ranks than cores.
        """
        streams, patient = Streams(), patient or self._is_crowded
        self._all_streams.append(streams)
        transport = (AwareTransport if self.is_aware else StagedTransport)(comm, streams, patient)
        library = (AwareCalls if self.is_aware else StagedCalls)(comm, streams, patient)
        node = self._node(group, streams, patient)
        self._how.append(node.how)
        levels = SharedLevels(node, self._topology, comm.rank)
        return DeviceBackend(streams, self.no_ipc, transport=transport, levels=levels,
                             calls={"mpi": library, "nccl": NcclCalls(comm, streams)})

    def _node(self, group: NodeGroup, streams: Streams, patient: bool) -> DeviceNode | _NoNode:
        if self.no_ipc:
            return _NoNode()
        return DeviceNode(group, self.windows, signals(self._node_comm, streams, patient), self._cards)

    def alloc(self, n_elems: int, dtype: np.dtype) -> Any:
        """A zeroed flat CuPy array, in a window where the ranks of a node can share one; all ranks call it.

        Raises CommError on every rank when they ask for different lengths or memory cannot be had.
        """
        lengths = self._comm.allgather(n_elems * dtype.itemsize)
        if len(set(lengths)) > 1:
            raise CommError(f"alloc: ranks ask for different lengths: {lengths} bytes", everywhere=True)
        array, fault = None, ""
        try:
            array = self._private(n_elems, dtype) if self.no_ipc else self.windows.allocate(n_elems, dtype)
        except CommError as error:  # of this rank, or of its node
            fault = str(error)
        if fault := self._agreed(fault):
            raise CommError(fault, everywhere=True)
        return array

    def _private(self, n_elems: int, dtype: np.dtype) -> Any:
        try:
            with device.load().cuda.Device(self.number):
                return device.load().zeros(n_elems, dtype)
        except Exception as error:  # CuPy's OutOfMemoryError: not known by name without CuPy
            n_bytes = n_elems * dtype.itemsize
            raise CommError(f"alloc: rank {self._comm.rank} cannot have {n_bytes} bytes of device memory: {error}"
                            ) from None

    def resolved(self, signature: CallSignature, array: Any, table: TuningTable) -> CallSignature:
        """The signature, on a CuPy array, `auto` resolved. Raises CommError unless the array lies on this GPU."""
        self._check(array)
        return self._complete(signature, array.nbytes, table)

    def _completed(self, signature: CallSignature, n_bytes: int, table: TuningTable) -> CallSignature:
        found = choose_on_device(signature.collective, n_bytes, self._topology, table, not self.no_ipc)
        chunk_bytes = signature.chunk_bytes or found.chunk_bytes
        algorithm = signature.algorithm
        if algorithm.selection:
            algorithm = replace(parse(found.algorithm), wire=algorithm.wire)
        if algorithm.library == "mpi" and signature.dtype == "bfloat16":
            raise CommError(f"{signature.collective}: MPI has no bfloat16, use auto or an algorithm of ours",
                            everywhere=True)
        return replace(signature, algorithm=algorithm, chunk_bytes=chunk_bytes)

    def _check(self, array: Any) -> None:
        if array.size and array.device.id != self.number:
            raise CommError(f"this rank's collectives run on GPU {self.number}, the array lies on GPU "
                            f"{array.device.id}: make its GPU the current one before the first collective")

    def describe(self) -> str:
        """How device buffers travel, in words."""
        n_cards = len(set(self._cards))
        sharing = f"{len(self._cards)} ranks on {n_cards} GPU{'s' * (n_cards > 1)}; {self._how[0]}"
        within = f"by messages ({self.no_ipc})" if self.no_ipc else f"by CUDA IPC ({sharing})"
        across = "from device memory" if self.is_aware else "through pinned host memory"
        return f"within a node {within}; messages {across} (CUDA-aware MPI: {aware.reason()})"

    def _refusal(self) -> str:
        """Why CUDA IPC need not be tried."""
        if os.environ.get(IPC_VARIABLE) == "0":
            return f"{IPC_VARIABLE}=0"
        n_ranks = self._node_comm.size
        return f"{n_ranks} ranks on a node are more than {MOST_RANKS}" if n_ranks > MOST_RANKS else ""

    def _try_ipc(self) -> str:
        """Share a little memory: why that cannot be on this node; empty where it can."""
        try:
            self.windows.prove()
        except CommError as error:
            return str(error)
        return ""

    def _agreed(self, fault: str) -> str:
        """The first rank's fault, on every rank; empty where there is none. All ranks call it."""
        return next(filter(None, self._comm.allgather(fault)), "")

    def _settle(self, until: float = float("inf")) -> None:
        for stream in (stream for streams in self._all_streams for stream in (streams.comm, streams.copy)):
            is_reached = Point.now(stream).is_reached
            wait_until(partial(_reached, is_reached, until), patient=True)

    def _finish(self) -> None:
        """This rank ends: its share of collectives that others wait for is to be done before its memory goes."""
        with suppress(Exception):  # where the device has failed, whoever needed it has been told
            self._settle(time.monotonic() + LAST_WORK_SECONDS)


def _reached(is_reached: Callable[[], bool], until: float) -> bool:
    return is_reached() or time.monotonic() > until
