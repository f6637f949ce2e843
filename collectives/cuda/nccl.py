"""NVIDIA's NCCL through CuPy: algorithm `nccl` of all collectives, one GPU per rank.

Calls are queued by the caller's own thread, blocking ones and `i...` alike, on one NCCL communicator and one stream: so
all ranks queue them in the same order, and the host waits for nothing. Kernels of two communicators that start in
different orders on two GPUs would wait for one another without end.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scaffe import log
from scaffe.collectives.cuda import device, nccl_start
from scaffe.collectives.cuda.cupy_types import DeviceArray
from scaffe.collectives.cuda.nccl_watch import NcclWatch, Surroundings
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import plan
from scaffe.collectives.runtime.backend import Call

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


TYPES = {"float32": "FLOAT32", "float64": "FLOAT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "int32": "INT32",
         "int64": "INT64"}
IN_HOSTS_ORDER = "NCCL_LAUNCH_ORDER_IMPLICIT"
"""NCCL 2.26 and later: kernels of several communicators (of ranks that were split) start in the host's order."""


class NcclCalls:
    """Collectives on the communication stream; NCCL orders them itself, the host waits for nothing. ``fault``: why
    these ranks cannot use NCCL, in one line; empty where they can."""

    def __init__(self, comm: Intracomm, streams: Streams, ranks: Surroundings) -> None:
        """All ranks of `comm` call it. NCCL itself starts before the first collective that is to use it."""
        self._comm, self._streams, self._ranks = comm, streams, ranks
        self._nccl: Any = None
        self._communicator: Any = None
        self._watch: NcclWatch | None = None
        self.fault = fault_of(comm.allgather(_location(streams.number)))

    def start(self) -> str:
        """Starts NCCL where it has not started yet; all ranks call it. Returns ``fault``."""
        if self._watch is None and not self.fault:
            os.environ.setdefault(IN_HOSTS_ORDER, "1")
            self._nccl = device.load_nccl()
            with self._ranks.together("start of NCCL"):
                self._communicator, self.fault = nccl_start.start(self._nccl, self._comm, self._streams.number,
                                                                  self._ranks.has_loss)
            if self.fault:
                log.warning(f"Device buffers go without NCCL: {self.fault}")
            else:
                self._watch = NcclWatch(self._communicator, self._streams, self._ranks)
        return self.fault

    def of(self, collective: str) -> Call:
        return partial(self._run, collective)

    def check(self) -> None:
        """Raises CommError where what was queued has ended undone."""
        if self._watch is not None:
            self._watch.check()

    def stop(self) -> None:
        """Before the interpreter ends: ends the watch alone."""
        if self._watch is not None:
            self._watch.stop()

    def close(self, is_well: bool) -> None:
        """Ends NCCL. ``is_well``: all ranks call it, and nothing is queued; else what is queued ends undone."""
        if self._watch is not None:
            self._watch.close(is_well)

    def _run(self, collective: str, source: DeviceArray, array: DeviceArray, op: str, root: int) -> None:
        watch = self._watch
        if watch is None:
            raise CommError(f"{collective}: NCCL has not started")
        watch.check()
        make: Callable[..., None] = getattr(self, f"_{collective}")
        make(source.data.ptr, array.data.ptr, array, getattr(self._nccl, f"NCCL_{TYPES[array.dtype.name]}"),
             getattr(self._nccl, f"NCCL_{op.upper()}"), root)
        watch.queued(f"{collective} by NCCL")

    def _bcast(self, given: int, got: int, array: DeviceArray, kind: int, op: int, root: int) -> None:
        self._communicator.broadcast(got, got, array.size, kind, root, self._streams.comm.ptr)

    def _reduce(self, given: int, got: int, array: DeviceArray, kind: int, op: int, root: int) -> None:
        self._communicator.reduce(given, got, array.size, kind, op, root, self._streams.comm.ptr)

    def _allreduce(self, given: int, got: int, array: DeviceArray, kind: int, op: int, root: int) -> None:
        self._communicator.allReduce(given, got, array.size, kind, op, self._streams.comm.ptr)

    def _reduce_scatter(self, given: int, got: int, array: DeviceArray, kind: int, op: int, root: int) -> None:
        """NCCL's own call where all parts are equally long, else one reduction for each part, in one group."""
        n_ranks, stream = self._comm.size, self._streams.comm.ptr
        if array.size % n_ranks == 0:
            n_elems = array.size // n_ranks
            own = got + self._comm.rank * n_elems * array.itemsize
            self._communicator.reduceScatter(given, own, n_elems, kind, op, stream)
            return
        with self._group():
            for rank, (at, n_elems) in enumerate(self._parts(array)):
                self._communicator.reduce(given + at, got + at, n_elems, kind, op, rank, stream)

    def _allgather(self, given: int, got: int, array: DeviceArray, kind: int, op: int, root: int) -> None:
        """As `_reduce_scatter`, with one broadcast for each part."""
        n_ranks, stream = self._comm.size, self._streams.comm.ptr
        if array.size % n_ranks == 0:
            n_elems = array.size // n_ranks
            own = got + self._comm.rank * n_elems * array.itemsize
            self._communicator.allGather(own, got, n_elems, kind, stream)
            return
        with self._group():
            for rank, (at, n_elems) in enumerate(self._parts(array)):
                self._communicator.broadcast(got + at, got + at, n_elems, kind, rank, stream)

    def _parts(self, array: DeviceArray) -> Iterator[tuple[int, int]]:
        """By rank: the byte at which its part begins, and the part's elements."""
        for start, stop in pairwise(plan.all_bounds(self._comm.size, array.size)):
            yield start * array.itemsize, stop - start

    @contextmanager
    def _group(self) -> Iterator[None]:
        self._nccl.groupStart()
        try:
            yield
        finally:
            self._nccl.groupEnd()


SHARED_GPU = "NCCL_MULTI_RANK_GPU_ENABLE"
"""NCCL 2.31 and later: with 1 several ranks may use one GPU."""


def _location(number: int) -> tuple[str, str, str]:
    """This rank's machine, its GPU's PCI bus id (empty where others may use it), and why NCCL cannot be loaded (empty
    where it can)."""
    try:
        device.load_nccl()
        missing = ""
    except CommError as error:
        missing = str(error)
    return platform.node(), "" if os.environ.get(SHARED_GPU) == "1" else device.card(number), missing


def fault_of(locations: list[tuple[str, str, str]]) -> str:
    """Why these ranks cannot use NCCL, in one line; empty where they can. ``locations``: of each rank its machine, its
    GPU's PCI bus id (empty where NCCL is to share it), and why it cannot load NCCL."""
    first: dict[tuple[str, str], int] = {}
    for rank, (node, bus, missing) in enumerate(locations):
        if missing:
            return f"algorithm nccl, rank {rank}: {missing}"
        other = first.setdefault((node, bus), rank)
        if other != rank and bus:
            return f"algorithm nccl: NCCL refuses two ranks on one GPU; ranks {other} and {rank} share {bus} of {node}"
    return ""
