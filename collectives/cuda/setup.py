"""Sets up the GPUs of a job's ranks before their first collective on device buffers."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.backend import AwareCalls, DeviceBackend, StagedCalls
from scaffe.collectives.cuda.device import Point
from scaffe.collectives.cuda.ipc.node import DeviceNode
from scaffe.collectives.cuda.ipc.signals import signals
from scaffe.collectives.cuda.ipc.windows import DeviceWindows, prove
from scaffe.collectives.cuda.kernels import MOST_RANKS, kernels
from scaffe.collectives.cuda.links import links_of
from scaffe.collectives.cuda.messages import aware
from scaffe.collectives.cuda.messages.message import wait_until
from scaffe.collectives.cuda.messages.transport import AwareTransport, StagedTransport
from scaffe.collectives.cuda.nccl import NcclCalls
from scaffe.collectives.cuda.nccl_watch import Surroundings
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.planning.levels import in_node_memory
from scaffe.collectives.runtime.arguments import CallSignature
from scaffe.collectives.shared.node import NodeGroup
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.device_choice import Links, choose_on_device
from scaffe.collectives.tuning.table import TuningTable
from scaffe.environment import CUDA_IPC

SWITCH_SECONDS = 5e-4
"""How long a thread that runs Python may keep the interpreter's lock from others that ask for it. With Python's 5 ms a
wait noticed its end 4.1 ms late beside one thread of pure Python, 13.8 beside two; with this 0.1 to 0.3, and those
threads ran 2 to 9 % slower, once 22 % (medians of 2 s, two busy cores)."""
LAST_WORK_SECONDS = 10
"""How long a rank that ends waits for the device work of its collectives, which its peers may be waiting for."""


class Device:
    """How the ranks of a job use their GPUs: found out once, the same on every rank but for the GPU itself.

    Attributes:
        windows: device memory that the node's ranks share.
        no_ipc: why they cannot share any; empty where they can.
        links: what joins the GPUs of all ranks.
        is_aware: whether messages may lie in device memory.
    """

    def __init__(self, comm: Any, node_comm: Any, topology: Topology, ranks: Surroundings) -> None:
        """Finds out what these ranks can do. All ranks call it; the current device is the one that each will use.

        Args:
            comm: all ranks; no other thread uses it meanwhile.
            node_comm: the ranks of this rank's node; likewise.
            ranks: what NCCL's watch goes by.
        """
        self._comm, self._node_comm, self._topology, self._ranks = comm, node_comm, topology, ranks
        self._is_crowded = is_crowded(node_comm.allgather(os.sched_getaffinity(0)))
        self.number = device.load().cuda.Device().id
        device.make_current(self.number)
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        self._all_streams: list[Streams] = []
        self._how = ""
        self._nccl: NcclCalls | None = None
        self._process = os.getpid()
        self._table: TuningTable | None = None
        self._cards = node_comm.allgather(device.card(self.number))
        self.windows = DeviceWindows(node_comm, self._synchronize, f"rank {comm.rank}")
        self.no_ipc = self._agreed(self._refusal()) or self._agreed(self._try_ipc())
        links = Links.worst(comm.allgather(links_of(self.number, self._cards)))
        self.links = links if self.no_ipc else links.proven()
        says_so = all(comm.allgather(aware.is_cuda_aware()))
        window = partial(self.windows.allocate, dtype=np.uint8)
        kinds: list[aware.Allocate] = [aware.pool] if self.no_ipc else [aware.pool, window]
        self._no_messages = aware.fault(comm, kinds) if says_so else ""
        self.is_aware = says_so and not self._no_messages
        self._complete = lru_cache(maxsize=4096)(self._completed)
        atexit.register(self._finish)

    def backend(self, comm: Any, group: NodeGroup, backs_off: bool) -> DeviceBackend:
        """Makes the backend of one engine. All ranks call it. ``comm``: only this engine uses it; ``group``: where the
        node's host threads meet."""
        streams, backs_off = Streams(), backs_off or self._is_crowded
        self._all_streams.append(streams)
        transport = (AwareTransport if self.is_aware else StagedTransport)(comm, streams, backs_off)
        library = (AwareCalls if self.is_aware else StagedCalls)(comm, streams, backs_off)
        node: Any = None  # where `no_ipc` says why algorithms on shared memory are refused
        if not self.no_ipc:
            node = DeviceNode(group, self.windows,
                              signals(self._node_comm, streams, backs_off, self._ranks.may_go_on), self._cards)
        self._how = node.how if node else ""
        self._nccl = self._nccl or NcclCalls(comm, streams, self._ranks)  # of the caller's engine, which comes first
        return DeviceBackend(streams, self.no_ipc, transport=transport, node=node,
                             calls={"mpi": library, "nccl": self._nccl})

    def alloc(self, n_elems: int, dtype: np.dtype) -> Any:
        """Allocates a buffer, in a window where the ranks of a node can share memory. All ranks call it.

        Args:
            n_elems: length, the same on all ranks.

        Returns:
            A CuPy array of zeros, shape (n_elems,).

        Raises:
            CommError: on every rank, when lengths differ or memory cannot be had.
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
            device.make_current(self.number)
            return device.zeros(n_elems, dtype)
        except Exception as error:  # CuPy's OutOfMemoryError: not known by name without CuPy
            n_bytes = n_elems * dtype.itemsize
            raise CommError(f"alloc: rank {self._comm.rank} cannot have {n_bytes} bytes of device memory: {error}"
                            ) from None

    def resolved(self, signature: CallSignature, array: Any, table: TuningTable) -> CallSignature:
        """Resolves `auto` in a call on a CuPy array. ``signature``: of the call, as the caller gave it. Returns the
        signature with an algorithm and a chunk. Raises CommError where the array does not lie on this rank's GPU."""
        if array.size and array.device.id != self.number:
            raise CommError(f"this rank's collectives run on GPU {self.number}, the array lies on GPU "
                            f"{array.device.id}: make its GPU the current one before the first collective")
        device.make_current(self.number)
        if table is not self._table:
            self._table = table
            kernels().allow(table.multiprocessors)
        return self._complete(signature, array.nbytes, table)

    def _completed(self, signature: CallSignature, n_bytes: int, table: TuningTable) -> CallSignature:
        algorithm = signature.algorithm
        may_use_nccl = algorithm.selection == "auto" and not algorithm.wire and not self._no_nccl
        choose = partial(choose_on_device, signature.collective, n_bytes, self._topology, table, not self.no_ipc,
                         links=self.links)
        found = choose(has_nccl=may_use_nccl)
        if "nccl" in (algorithm.library, found.algorithm) and self._nccl is not None and self._nccl.start():
            found = choose(has_nccl=False)  # who has asked for NCCL is told why it cannot be when ranks compare calls
        kernels().allow(table.multiprocessors)
        chunk_bytes = signature.chunk_bytes or found.chunk_bytes
        if algorithm.selection:
            algorithm = replace(parse(found.algorithm), wire=algorithm.wire)
        elif not self.no_ipc:
            algorithm = in_node_memory(algorithm, self._topology)
        if algorithm.library == "mpi" and signature.dtype == "bfloat16":
            raise CommError(f"{signature.collective}: MPI has no bfloat16, use auto or an algorithm of ours",
                            everywhere=True)
        return replace(signature, algorithm=algorithm, chunk_bytes=chunk_bytes)

    def describe(self) -> str:
        n_cards = len(set(self._cards))
        sharing = f"{len(self._cards)} ranks on {n_cards} GPU{'s' * (n_cards > 1)}; {self._how}"
        within = f"by messages ({self.no_ipc})" if self.no_ipc else f"by CUDA IPC ({sharing})"
        across = "from device memory" if self.is_aware else "through pinned host memory"
        return f"within a node {within}; messages {across} (CUDA-aware MPI: {aware.reason()}" \
               f"{', but ' if self._no_messages else ''}{self._no_messages}); {self.links}; " \
               f"{f'without NCCL ({self._no_nccl})' if self._no_nccl else 'with NCCL'}"

    def wait(self) -> None:
        """Returns when the device has done what this rank's collectives have queued. CommError where that failed."""
        self._synchronize()
        if self._nccl is not None:
            self._nccl.check()

    def free(self) -> None:
        """Returns when no collective of these ranks has work left on the device."""
        self._synchronize()
        self._end(is_well=True)

    def abandon(self) -> None:
        """After a loss: ends what would wait for a lost rank on the device."""
        self._end(is_well=False)

    def _end(self, is_well: bool) -> None:
        if self._nccl is not None:
            self._nccl.close(is_well)
        atexit.unregister(self._finish)

    @property
    def _no_nccl(self) -> str:
        return "not asked yet" if self._nccl is None else self._nccl.fault

    def _refusal(self) -> str:
        """Why CUDA IPC need not be tried; empty where it is to be."""
        if not CUDA_IPC.get():
            return f"{CUDA_IPC.name}=0"
        n_ranks = self._node_comm.size
        return f"{n_ranks} ranks on a node are more than {MOST_RANKS}" if n_ranks > MOST_RANKS else ""

    def _try_ipc(self) -> str:
        """Tries to share a little memory. Returns why that fails on this node; empty where it works."""
        try:
            prove(self.windows, self._node_comm, f"rank {self._comm.rank}")
        except CommError as error:
            return str(error)
        return ""

    def _agreed(self, fault: str) -> str:
        """The first rank's fault, on every rank; empty where there is none. All ranks call it."""
        return next(filter(None, self._comm.allgather(fault)), "")

    def _synchronize(self, until: float = float("inf")) -> None:
        for stream in (stream for streams in self._all_streams for stream in (streams.comm, streams.copy)):
            point = Point.now(stream)
            wait_until(lambda point=point: point.is_reached() or time.monotonic() > until, backs_off=True)  # type: ignore[misc]

    def _finish(self) -> None:
        """At exit: completes this rank's share of collectives, which others may wait for; memory is freed then."""
        if os.getpid() != self._process:  # a forked child has no part in it
            return
        with suppress(Exception):  # where the device has failed, whoever needed it has been told
            self._synchronize(time.monotonic() + LAST_WORK_SECONDS)
        if self._nccl is not None:
            self._nccl.stop()


def is_crowded(cores_of_ranks: Sequence[Collection[int]]) -> bool:
    """Whether a node's ranks are more than the cores that they may run on (pure)."""
    return len(cores_of_ranks) > len(set().union(*cores_of_ranks))
