"""The library's front door: ranks, collectives on large arrays, small objects, and the end of the job."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from . import failure, memory, partition
from .datatypes import check
from .errors import CommError
from .launch import launched, load_mpi
from .mpi_calls import MpiCalls
from .progress import ProgressThread
from .request import Request


class Communicator:
    """A group of ranks. Every method but `rank`-like properties, `alloc`ed views and `abort` is called by all ranks.

    Arrays are contiguous host arrays of float32/64/16 or int32/64, of the same length and dtype on every rank; any
    shape, taken as flat. Reductions work in place: without `out`, every rank's array is the workspace and only the
    part that the result goes to is defined afterwards. With `out` (given on every rank), `array` stays as it is.
    """

    def __init__(self, comm=None) -> None:
        """`comm`: an mpi4py intracommunicator, which is duplicated; None for one rank without MPI."""
        self.rank = 0 if comm is None else comm.rank
        self.n_ranks = 1 if comm is None else comm.size
        self._comm = None if comm is None else comm.Dup()
        self._calls = None if comm is None else MpiCalls(self._comm)
        self._progress_calls: MpiCalls | None = None
        self._progress = ProgressThread()
        self._node = _Node(self._comm)

    @classmethod
    def world(cls, thread_level: str = "multiple") -> Communicator:
        """All ranks of the job; one rank without MPI when no launcher started this process.

        Raises CommError when started by a launcher but MPI cannot be loaded.
        """
        if not launched():
            return cls.single()
        return cls(load_mpi(thread_level).COMM_WORLD)

    @classmethod
    def single(cls) -> Communicator:
        """One rank by itself; MPI is not touched."""
        return cls(None)

    @property
    def node_rank(self) -> int:
        """This rank's place among the ranks of its node."""
        return self._node.rank

    @property
    def node_n_ranks(self) -> int:
        """How many ranks this rank's node holds."""
        return self._node.n_ranks

    @property
    def topology(self):
        """Which rank sits on which node (a `collectives.topology.Topology`)."""
        from .topology import Topology

        return Topology(tuple(self.allgather_objects(self._node.leader)))

    def part(self, n_elems: int, rank: int | None = None) -> slice:
        """The slice that `rank` (default: this one) owns in reduce_scatter and allgather."""
        return partition.part(self.rank if rank is None else rank, self.n_ranks, n_elems)

    # --- collectives on arrays

    def barrier(self) -> None:
        """Return when every rank has called it."""
        if self._comm is not None:
            self._comm.Barrier()

    def bcast(self, array: np.ndarray, root: int = 0, algorithm: str = "mpi") -> None:
        """Root's array on every rank."""
        self._run("bcast", algorithm, _flat(array), root)

    def reduce(self, array: np.ndarray, root: int = 0, op: str = "sum", algorithm: str = "mpi",
               out: np.ndarray | None = None) -> None:
        """The reduction over ranks in root's array (or `out`)."""
        self._run("reduce", algorithm, _target(array, out, op), root, op)

    def allreduce(self, array: np.ndarray, op: str = "sum", algorithm: str = "mpi",
                  out: np.ndarray | None = None) -> None:
        """The reduction over ranks in every rank's array (or `out`)."""
        self._run("allreduce", algorithm, _target(array, out, op), op)

    def reduce_scatter(self, array: np.ndarray, op: str = "sum", algorithm: str = "mpi",
                       out: np.ndarray | None = None) -> None:
        """Each rank's own `part` of array (or `out`) becomes the reduction over ranks of that part."""
        self._run("reduce_scatter", algorithm, _target(array, out, op), op)

    def allgather(self, array: np.ndarray, algorithm: str = "mpi") -> None:
        """Every rank's own `part` of the array goes to all ranks."""
        self._run("allgather", algorithm, _flat(array))

    def ibcast(self, array: np.ndarray, root: int = 0, algorithm: str = "mpi") -> Request:
        """`bcast`, carried on by the helper thread."""
        return self._submit("bcast", algorithm, _flat(array), root)

    def ireduce(self, array: np.ndarray, root: int = 0, op: str = "sum", algorithm: str = "mpi",
                out: np.ndarray | None = None) -> Request:
        """`reduce`, carried on by the helper thread."""
        return self._submit("reduce", algorithm, _target(array, out, op), root, op)

    def iallreduce(self, array: np.ndarray, op: str = "sum", algorithm: str = "mpi",
                   out: np.ndarray | None = None) -> Request:
        """`allreduce`, carried on by the helper thread."""
        return self._submit("allreduce", algorithm, _target(array, out, op), op)

    def ireduce_scatter(self, array: np.ndarray, op: str = "sum", algorithm: str = "mpi",
                        out: np.ndarray | None = None) -> Request:
        """`reduce_scatter`, carried on by the helper thread."""
        return self._submit("reduce_scatter", algorithm, _target(array, out, op), op)

    def iallgather(self, array: np.ndarray, algorithm: str = "mpi") -> Request:
        """`allgather`, carried on by the helper thread."""
        return self._submit("allgather", algorithm, _flat(array))

    def alloc(self, n_elems: int, dtype: Any = np.float32) -> np.ndarray:
        """A zeroed flat array on which collectives within a node are fastest."""
        return memory.private_empty(n_elems, dtype)

    # --- small objects

    def bcast_object(self, value: Any = None, root: int = 0) -> Any:
        """Root's (picklable) value on every rank."""
        return value if self._comm is None else self._comm.bcast(value, root)

    def gather_objects(self, value: Any, root: int = 0) -> list[Any] | None:
        """Every rank's value, in rank order, on root; None elsewhere."""
        return [value] if self._comm is None else self._comm.gather(value, root)

    def allgather_objects(self, value: Any) -> list[Any]:
        """Every rank's value, in rank order, on every rank."""
        return [value] if self._comm is None else self._comm.allgather(value)

    def agree(self, value: Any, what: str) -> None:
        """Raise the same CommError on every rank unless all ranks came with the same value."""
        values = self.allgather_objects(value)
        for rank, other in enumerate(values):
            if other != values[0]:
                raise CommError(f"{what} differs: rank 0 has {values[0]}, rank {rank} has {other}", everywhere=True)

    # --- the end

    def abort(self, code: int = 1) -> None:
        """End the job on all ranks at once with exit code `code`. Does not return."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self._comm is not None:
            self._comm.Abort(code)
        os._exit(code)

    def install_excepthook(self) -> None:
        """From now on an uncaught exception in any thread prints one line with the rank and ends the job."""
        failure.install_excepthook(self)

    # --- inside

    def _run(self, collective: str, algorithm: str, *arguments: Any) -> None:
        if self._calls is not None:
            getattr(self._calls, collective)(*arguments)

    def _submit(self, collective: str, algorithm: str, *arguments: Any) -> Request:
        label = f"rank {self.rank}: i{collective}"
        if self._comm is None:
            request = Request(label)
            request.finish()
            return request
        if self._progress_calls is None:
            self._progress_calls = MpiCalls(self._comm.Dup())
        call = getattr(self._progress_calls, collective)
        return self._progress.submit(label, lambda: call(*arguments))


class _Node:
    """The ranks that share this rank's memory; SCAFFE_RANKS_PER_NODE cuts them into smaller ones."""

    def __init__(self, comm) -> None:
        self.comm, self.rank, self.n_ranks, self.leader = None, 0, 1, 0
        if comm is None:
            return
        from mpi4py import MPI

        self.comm = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
        per_node = int(os.environ.get("SCAFFE_RANKS_PER_NODE", "0"))
        if per_node > 0:
            self.comm = self.comm.Split(self.comm.rank // per_node, comm.rank)
        self.rank, self.n_ranks = self.comm.rank, self.comm.size
        self.leader = self.comm.bcast(comm.rank)


def _flat(array: np.ndarray) -> np.ndarray:
    check(array)
    return array.reshape(-1)


def _target(array: np.ndarray, out: np.ndarray | None, op: str) -> np.ndarray:
    """The array to work in: `array`, or `out` with array's values."""
    check(array, op)
    if out is None:
        return array.reshape(-1)
    check(out, op)
    if out.size != array.size or out.dtype != array.dtype:
        raise CommError(f"out must be {array.size} x {array.dtype}, not {out.size} x {out.dtype}")
    np.copyto(out.reshape(-1), array.reshape(-1))
    return out.reshape(-1)
