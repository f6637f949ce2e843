"""The library's front door: ranks, collectives on large arrays, small objects, and the end of the job."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from scaffe.collectives import failure
from scaffe.collectives.errors import CommError
from scaffe.collectives.launch import launched, load_mpi
from scaffe.collectives.planning import partition
from scaffe.collectives.planning.datatypes import NAMES, dtype_name
from scaffe.collectives.request import Request
from scaffe.collectives.runtime import places
from scaffe.collectives.runtime.shared_levels import above
from scaffe.collectives.runtime.signature import CallSignature
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.device_choice import BANDWIDTH_BYTES
from scaffe.collectives.tuning.selector import AUTO, LIBRARIES, OWN, Selector

DEADLINE_VARIABLE = "SCAFFE_DEADLINE"
LAST_WORDS_SECONDS = 0.2  # for the launcher to pass on what this rank printed: Open MPI's drops it otherwise


class Communicator:
    """A group of ranks. Every method but `rank`-like properties, `alloc`ed views and `abort` is called by all ranks.

    Arrays are contiguous arrays of float32/64/16 or int32/64 (bfloat16 too on a device), of the same length, dtype and
    place on every rank; any shape, taken as flat. They lie in host memory or on a GPU (CuPy, PyTorch, numba): there a
    call follows what the current stream has been given, the stream follows the call, and the host waits for messages
    only; non-blocking forms follow the event `after`, or else the current stream, and `Request.wait` says who follows
    them. Reductions work in place: without `out`, every rank's array is the workspace and only the
    part that the result goes to is defined afterwards. With `out` (given on every rank), `array` stays as it is.
    """

    def __init__(self, comm=None, deadline: float | None = None,
                 node_of_rank: Sequence[Hashable] | None = None) -> None:
        """`comm`: an mpi4py intracommunicator, which is duplicated; None for one rank without MPI.

        `deadline`: seconds after which waiting for a peer ends the job with a line that names it; default
        SCAFFE_DEADLINE from the environment, or 900. `node_of_rank`: a label for every rank, the same sequence on all
        ranks; ranks of one label make a node as far as they share memory. Default: what MPI finds to share memory, cut
        into SCAFFE_RANKS_PER_NODE ranks each where that is set.

        Raises CommError where `node_of_rank` has not one label a rank.
        """
        self.rank = 0 if comm is None else comm.rank
        self.n_ranks = 1 if comm is None else comm.size
        self.deadline = float(os.environ.get(DEADLINE_VARIABLE, 900)) if deadline is None else deadline
        self._comm = self._ranks = None
        if comm is not None:
            from scaffe.collectives.runtime.ranks import Ranks

            self._comm = comm.Dup()
            self._ranks = Ranks(self._comm, self.deadline, self._give_up, node_of_rank)
        self._selector = Selector(self.topology)
        self._choosers = {"host": self._on_host, "device": self._on_device}

    @classmethod
    def world(cls, thread_level: str = "multiple", deadline: float | None = None,
              node_of_rank: Sequence[Hashable] | None = None) -> Communicator:
        """All ranks of the job; one rank without MPI when no launcher started this process.

        `deadline`, `node_of_rank`: as the constructor has them. `thread_level`: what to ask MPI for; below `multiple`,
        non-blocking collectives run when they are called.
        Raises CommError when started by a launcher but MPI cannot be loaded.
        """
        if not launched():
            return cls.single()
        return cls(load_mpi(thread_level).COMM_WORLD, deadline, node_of_rank)

    @classmethod
    def single(cls) -> Communicator:
        """One rank by itself; MPI is not touched."""
        return cls(None)

    @property
    def topology(self) -> Topology:
        """Which rank sits on which node: what MPI finds to share memory, or what was given."""
        return Topology([0]) if self._ranks is None else self._ranks.topology

    @property
    def node_rank(self) -> int:
        """This rank's place among the ranks of its node."""
        return self.topology.node_rank(self.rank)

    @property
    def node_n_ranks(self) -> int:
        """How many ranks this rank's node holds."""
        return len(self.topology.nodes[self.topology.node_of_rank[self.rank]])

    def part(self, n_elems: int, rank: int | None = None) -> slice:
        """The slice that `rank` (default: this one) owns in reduce_scatter and allgather."""
        return partition.part(self.rank if rank is None else rank, self.n_ranks, n_elems)

    def can(self, collective: str, algorithm: str) -> bool:
        """Whether `algorithm` (a name, or "auto") can do `collective` on these ranks."""
        return self._selector.can(collective, algorithm)

    def check(self, algorithm: str) -> None:
        """Raise CommError, the same on every rank, where no algorithm is called that."""
        self._selector.check(algorithm)

    def bandwidth_bytes(self, collective: str, array: np.ndarray) -> int:
        """How long a part of `array` must be for bytes, not start-ups, to make the time of `collective` on it, by the
        tuned table; 0 on one rank."""
        if self._ranks is None:
            return 0
        if places.of(array) is places.DEVICE:
            return self._selector.bandwidth_bytes(collective, "cuda", BANDWIDTH_BYTES)
        is_shared = self._ranks.windows.find(array.reshape(-1)) is not None
        is_shared = is_shared and self.topology.n_nodes < self.n_ranks
        return self._selector.bandwidth_bytes(collective, "shared" if is_shared else "host")

    # --- collectives on arrays

    def barrier(self) -> None:
        """Return when every rank has called it."""
        if self._ranks is not None and self._comm is not None:
            with self._ranks.engine.watch.for_any("barrier"):
                self._comm.Barrier()

    def bcast(self, array: np.ndarray, root: int = 0, algorithm: str = "auto", chunk_bytes: int = 0) -> None:
        """Root's array on every rank."""
        self._run("bcast", array, None, algorithm, chunk_bytes, root=root)

    def reduce(self, array: np.ndarray, root: int = 0, op: str = "sum", algorithm: str = "auto",
               out: np.ndarray | None = None, chunk_bytes: int = 0) -> None:
        """The reduction over ranks in root's array (or `out`)."""
        self._run("reduce", array, out, algorithm, chunk_bytes, root=root, op=op)

    def allreduce(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                  out: np.ndarray | None = None, chunk_bytes: int = 0) -> None:
        """The reduction over ranks in every rank's array (or `out`)."""
        self._run("allreduce", array, out, algorithm, chunk_bytes, op=op)

    def allreduce_shared(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                         chunk_bytes: int = 0) -> np.ndarray:
        """The reduction over ranks in one array that all ranks of a node share: no copies of the result are made.

        array: host memory from `alloc`. Gives a flat read-only view of the array of the node's first rank; it holds the
        result until that rank writes its array again, which the node's ranks must have left to it by a collective call
        (a barrier will do). algorithm: one that starts with M. Raises CommError for other arrays and algorithms.
        """
        flat = places.of(array).flat(array, op)
        if self._ranks is None or self.n_ranks == 1 or flat.size == 0:
            return _read_only(flat)
        if places.of(array) is places.DEVICE or self._ranks.windows.find(flat) is None:
            raise CommError("a shared result needs an array in host memory from alloc")
        name = algorithm if algorithm != "auto" else "M" if self.topology.n_nodes == 1 else "MR"
        if above(name) is None:
            raise CommError(f"a shared result needs an algorithm that starts with M, not {algorithm!r}")
        _, chunk_bytes = self._selector.choose("allreduce", name, chunk_bytes, flat.nbytes, True)
        signature = CallSignature("allreduce", name, flat.size, NAMES[flat.dtype], op, 0, chunk_bytes,
                                  is_one_a_node=True)
        self._ranks.run(signature, flat, flat)
        return self._ranks.windows.on_rank(flat, 0)

    def reduce_scatter(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                       out: np.ndarray | None = None, chunk_bytes: int = 0) -> None:
        """Each rank's own `part` of array (or `out`) becomes the reduction over ranks of that part."""
        self._run("reduce_scatter", array, out, algorithm, chunk_bytes, op=op)

    def allgather(self, array: np.ndarray, algorithm: str = "auto", chunk_bytes: int = 0) -> None:
        """Every rank's own `part` of the array goes to all ranks."""
        self._run("allgather", array, None, algorithm, chunk_bytes)

    def ibcast(self, array: np.ndarray, root: int = 0, algorithm: str = "auto", chunk_bytes: int = 0,
               after: Any = None) -> Request:
        """`bcast`, carried on by the helper thread."""
        return self._submit("bcast", array, None, algorithm, chunk_bytes, after, root=root)

    def ireduce(self, array: np.ndarray, root: int = 0, op: str = "sum", algorithm: str = "auto",
                out: np.ndarray | None = None, chunk_bytes: int = 0, after: Any = None) -> Request:
        """`reduce`, carried on by the helper thread."""
        return self._submit("reduce", array, out, algorithm, chunk_bytes, after, root=root, op=op)

    def iallreduce(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                   out: np.ndarray | None = None, chunk_bytes: int = 0, after: Any = None) -> Request:
        """`allreduce`, carried on by the helper thread."""
        return self._submit("allreduce", array, out, algorithm, chunk_bytes, after, op=op)

    def ireduce_scatter(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                        out: np.ndarray | None = None, chunk_bytes: int = 0, after: Any = None) -> Request:
        """`reduce_scatter`, carried on by the helper thread."""
        return self._submit("reduce_scatter", array, out, algorithm, chunk_bytes, after, op=op)

    def iallgather(self, array: np.ndarray, algorithm: str = "auto", chunk_bytes: int = 0,
                   after: Any = None) -> Request:
        """`allgather`, carried on by the helper thread."""
        return self._submit("allgather", array, None, algorithm, chunk_bytes, after)

    def alloc(self, n_elems: int, dtype: Any = np.float32, place: str = "host") -> np.ndarray:
        """A zeroed flat array that the other ranks of the node have mapped: collectives within it are fastest there.

        place: "host", or "device" for a CuPy array on the current GPU (on a GPU of its own where CUDA IPC cannot be
        had). Every rank calls it with the same length; slices of the array are as good. Raises CommError on every rank
        where lengths differ, memory cannot be shared, or a rank has no GPU.
        """
        kind = places.named(place)
        if self._ranks is None:
            return kind.zeros(n_elems, dtype)
        return self._ranks.alloc(n_elems, np.dtype(dtype), kind.name)

    def describe_device(self) -> str:
        """How device buffers travel among these ranks, in words. Every rank calls it; CommError without a GPU."""
        if self._ranks is None:
            return "one rank by itself"
        return self._ranks.device(CallSignature("describe_device", "auto", 0, "uint8", place="device")).describe()

    def message_pair(self, array: np.ndarray) -> Callable[[], None]:
        """A call that sends the array from rank 0 to rank 1 and back, over messages that are set up once."""
        if self._ranks is None:
            raise CommError("a message needs 2 ranks, this job has 1")
        place = places.of(array)
        flat = place.flat(array, "sum")
        if place is places.DEVICE:
            self._ranks.device(CallSignature("message", "auto", flat.size, flat.dtype.name, place="device"))
        return self._ranks.engine.message_pair(flat, place.name)

    # --- small objects

    def bcast_object(self, value: Any = None, root: int = 0) -> Any:
        """Root's (picklable) value on every rank."""
        return self._exchange("bcast", value, root, alone=value)

    def gather_objects(self, value: Any, root: int = 0) -> list[Any] | None:
        """Every rank's value, in rank order, on root; None elsewhere."""
        return self._exchange("gather", value, root, alone=[value])

    def allgather_objects(self, value: Any) -> list[Any]:
        """Every rank's value, in rank order, on every rank."""
        return self._exchange("allgather", value, alone=[value])

    def agree(self, value: Any, what: str) -> None:
        """Raise the same CommError on every rank unless all ranks came with the same value."""
        values = self.allgather_objects(value)
        for rank, other in enumerate(values):
            if other != values[0]:
                raise CommError(f"{what} differs: rank 0 has {values[0]}, rank {rank} has {other}", everywhere=True)

    # --- the end

    def abort(self, code: int = 1) -> None:
        """End the job on all ranks at once with exit code `code`. Does not return."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # a stream that is full or closed keeps nobody alive
                stream.flush()
        if self._comm is not None:
            time.sleep(LAST_WORDS_SECONDS)
            self._comm.Abort(code)
        os._exit(code)

    def install_excepthook(self) -> None:
        """From now on an uncaught exception in any thread prints one line with the rank and ends the job."""
        failure.install_excepthook(self)

    # --- inside

    def _give_up(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        self.abort(1)

    def _exchange(self, call: str, *arguments: Any, alone: Any) -> Any:
        if self._ranks is None:
            return alone
        with self._ranks.engine.watch.for_any(f"{call} of objects"):
            return getattr(self._comm, call)(*arguments)

    def _call(self, collective: str, array: Any, out: Any, algorithm: str, chunk_bytes: int,
             **how: Any) -> tuple[CallSignature, Any, Any]:
        """What to run, the flat array to work in, and the one to read (another only for libraries' own calls)."""
        place = places.of(array)
        source = place.flat(array, how.get("op", "sum"))
        flat = source if out is None else _like(source, places.of(out).flat(out, how.get("op", "sum")))
        signature = self._choosers[place.name](flat, collective, algorithm, chunk_bytes, how)
        if source is not flat and self._ranks is None:
            place.copy(flat, source)
        elif source is not flat and signature.algorithm not in LIBRARIES:
            source = place.prepared(flat, source)
        return signature, flat, source

    def _on_host(self, flat: np.ndarray, collective: str, algorithm: str, chunk_bytes: int, how: dict) -> CallSignature:
        """The call's signature, `auto` and defaults resolved."""
        choose = self._selector.choose
        chosen = choose(collective, algorithm, chunk_bytes, flat.nbytes, False)
        if self._ranks is not None and algorithm.startswith((AUTO, OWN)):
            if_shared = choose(collective, algorithm, chunk_bytes, flat.nbytes, True)
            if if_shared != chosen and self._ranks.windows.find(flat) is not None:
                chosen = if_shared
        name, chunk_bytes = chosen
        return CallSignature(collective, name, flat.size, NAMES[flat.dtype], chunk_bytes=chunk_bytes, **how)

    def _on_device(self, flat: Any, collective: str, algorithm: str, chunk_bytes: int, how: dict) -> CallSignature:
        """As `_on_host`; the first such call sets devices up, together with all ranks."""
        dtype = dtype_name(flat.dtype)
        signature = CallSignature(collective, algorithm, flat.size, dtype, chunk_bytes=chunk_bytes, place="device",
                                  **how)
        if self._ranks is None:
            return signature
        return self._ranks.device(signature).resolved(signature, flat, self._selector.table)

    def _run(self, *call: Any, **how: Any) -> None:
        signature, flat, source = self._call(*call, **how)
        if self._ranks is not None:
            self._ranks.run(signature, flat, source)

    def _submit(self, collective: str, array: Any, out: Any, algorithm: str, chunk_bytes: int, after: Any,
                **how: Any) -> Request:
        label = f"rank {self.rank}: i{collective}"
        if self._ranks is None:
            point = places.of(array).point(after)
            self._call(collective, array, out, algorithm, chunk_bytes, **how)
            return Request.completed(label, point)
        if algorithm.startswith(AUTO) and places.of(array).name == "host":
            algorithm = algorithm.replace(AUTO, OWN, 1)
        signature, flat, source = self._call(collective, array, out, algorithm, chunk_bytes, **how)
        return self._ranks.submit(label, signature, flat, source, after)


def _like(array: Any, out: Any) -> Any:
    """`out`, which must be like the array."""
    if out.size != array.size or out.dtype != array.dtype or type(out) is not type(array):
        raise CommError(f"out must be {array.size} x {array.dtype}, not {out.size} x {out.dtype}"
                        + ("" if type(out) is type(array) else ", and of the same place"))
    return out


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
