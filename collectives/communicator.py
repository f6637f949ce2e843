"""The library's front door: ranks, collectives on large arrays, small objects, and the end of the job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe import environment
from scaffe.collectives import failure
from scaffe.collectives.errors import CommError
from scaffe.collectives.fault_tolerance.losses import on_ranks_left
from scaffe.collectives.launch import launched, load_mpi, must_be_rank, while_starting
from scaffe.collectives.planning import plan
from scaffe.collectives.request import Request
from scaffe.collectives.runtime import arguments
from scaffe.collectives.runtime.freed_communicator import Freeable
from scaffe.collectives.runtime.one_rank import OneRank
from scaffe.collectives.runtime.resolver import Resolver
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.selector import Selector, tuned_table

if TYPE_CHECKING:
    from scaffe.collectives.fault_tolerance.losses import Losses
    from scaffe.collectives.runtime.fault_tolerant_messages import FaultTolerantMessages
    from scaffe.collectives.runtime.point_to_point import PointToPoint
    from scaffe.collectives.runtime.ranks import Ranks


class Communicator(Freeable):
    """A group of ranks. Every method but `rank`-like properties, `alloc`ed views and `abort` is called by all ranks.

    Collectives take these arguments:
        array: contiguous, of float32/64/16 or int32/64 (bfloat16 too on a device), any shape, taken as flat; of the
            same length, dtype and memory on every rank. It lies in host memory (NumPy, or anything with
            `__array_interface__` or DLPack) or on a GPU (CuPy, PyTorch, numba); it is never copied to be used.
        root: rank where a reduction ends or a broadcast starts.
        op: "sum", "max", "min" or "prod".
        algorithm: "auto" for the tuned table's, "mpi" for the library's own, or a name such as "CB-8", "MR", "C:bf16"
            (docs/collectives.md).
        out: on every rank, an array like `array` for the result; `array` stays as it is then. Without it reductions
            work in place: of every rank's array only the part that the result goes to is defined afterwards.
        chunk_bytes: length of the longest message; 0 for the table's.

    They raise CommError, the same on every rank and before anything is sent, where ranks make different calls, a call
    cannot be done, or an array that will be written is read-only. On a device a call follows what the current stream
    has been given, the stream follows the call, and the host waits for messages only. Non-blocking forms follow the
    event `after`, or else the current stream, and `Request.wait` says who follows them. The array's GPU stays the
    calling thread's current one.

    Attributes:
        rank, n_ranks: this one, and how many there are.
        algorithms: which algorithms these ranks can use, and how `auto` chooses.
        links: makes a description of what joins the ranks' GPUs; every rank calls it. CommError without a GPU.
        check_lost: raises RankLost where one is known to be lost; local, for waits that are no calls of this class.
        deadline, patience: seconds after which a stopped rank counts as lost; after which waiting ends the job.
    """

    def __init__(self, comm: Any = None, deadline: float | None = None,
                 node_of_rank: Sequence[Hashable] | None = None, is_ours: bool = False,
                 parent: Losses | None = None) -> None:
        """Args:
            comm: mpi4py intracommunicator, which is duplicated; None for one rank without MPI.
            deadline: seconds after which a missing peer is too late; SCAFFE_DEADLINE from the environment, or 900.
            node_of_rank: a label for every rank, the same sequence on all ranks; ranks of one label make a node as far
                as they share memory. Default: what MPI finds to share memory, cut into SCAFFE_RANKS_PER_NODE ranks
                each where that is set.
            is_ours: `comm` is nobody else's, and not duplicated.
            parent: of a communicator that `comm` has some ranks of: a loss there is one here too.

        Raises:
            CommError: `node_of_rank` has not one label per rank, or this is a forked child of a rank.
        """
        if comm is not None:
            must_be_rank()
            self.invalidate_in_child()
        self.rank, self.n_ranks = (0, 1) if comm is None else (int(comm.rank), int(comm.size))
        self.deadline = environment.DEADLINE.get() if deadline is None else deadline
        self._comm = comm.Dup() if comm is not None and not is_ours else comm
        self._ranks: Ranks | OneRank = OneRank()
        if self._comm is not None:
            from scaffe.collectives.runtime.ranks import Ranks

            self._ranks = Ranks(self._comm, self.deadline, self._give_up, node_of_rank, parent)
        self.links, self.check_lost = self._ranks.links, self._ranks.check_lost
        self.patience = self._ranks.patience or self.deadline
        self.algorithms = Resolver(self.rank, self._ranks, Selector(self.topology))
        self._resolve, self._run, self._submit = self.algorithms.resolve, self._ranks.run, self._ranks.submit

    @classmethod
    def world(cls, thread_level: str = "multiple", deadline: float | None = None,
              node_of_rank: Sequence[Hashable] | None = None) -> Communicator:
        """Makes a communicator of all ranks of the job; of one rank when no launcher started this process.

        Args:
            thread_level: what to ask MPI for; below `multiple`, non-blocking collectives run when they are called.
            deadline, node_of_rank: as the constructor has them.

        Raises:
            CommError: a launcher started this process but MPI, or SCAFFE_TABLE, cannot be loaded.
        """
        tuned_table()  # before MPI starts, in which whoever ends with an error waits for the others
        if not launched():
            return cls.single()
        return while_starting(lambda: cls(load_mpi(thread_level).COMM_WORLD, deadline, node_of_rank))

    @classmethod
    def single(cls) -> Communicator:
        """Makes a communicator of one rank by itself; MPI is not touched."""
        return cls(None)

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Makes communicators of some of the ranks each; all ranks call it. None where this rank has no color.

        Args:
            color: 0 or more; ranks of one color make a communicator, on the nodes that they have here. None for none.
            key: orders them, and among equals their ranks here.
        """
        if isinstance(self._ranks, OneRank):
            return None if arguments.place_in_split(color, key)[0] is None else Communicator.single()
        found = self._ranks.split(color, key)
        return self._made(*found, self._ranks.losses) if found[0] is not None else None

    def subset(self, ranks: Sequence[int]) -> Communicator | None:
        """Makes a communicator of some ranks, on the nodes that they have here, who alone call it; None on others.

        Args:
            ranks: the same sequence on all of them; the first becomes rank 0.
        """
        subset, chosen = self._ranks.subset, arguments.distinct_ranks("ranks", ranks, self.n_ranks)
        return self._made(*subset(chosen), self._ranks.losses) if self.rank in chosen else None

    def shrink(self) -> Communicator:
        """After RankLost: makes a communicator of the ranks that are left, in their order; all of these call it. Arrays
        from this one's `alloc` stay. Raises CommError where MPI ends a job with a lost rank."""
        return on_ranks_left(self._ranks.end(), self.topology.node_of_rank, self._made, self._ranks.has_ended)

    @property
    def topology(self) -> Topology:
        """Which rank sits on which node: what MPI finds to share memory, or what was given."""
        return self._ranks.topology

    @property
    def node_rank(self) -> int:
        """This rank's index among the ranks of its node."""
        return self.topology.node_rank(self.rank)

    @property
    def node_n_ranks(self) -> int:
        """How many ranks this rank's node holds."""
        return len(self.topology.nodes[self.topology.node_of_rank[self.rank]])

    def part(self, n_elems: int, rank: int | None = None) -> slice:
        """The slice that `rank` (default: this one) owns in reduce_scatter and allgather. CommError for another."""
        rank = self.rank if rank is None else arguments.existing_rank("rank", rank, self.n_ranks)
        return plan.part(rank, self.n_ranks, arguments.bounded("n_elems", n_elems, 0, sys.maxsize))

    # --- collectives on arrays: arguments and errors as the class has them

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self._ranks.barrier()

    def bcast(self, array: np.ndarray, root: int = 0, algorithm: str = "auto", chunk_bytes: int = 0) -> None:
        """Copies root's array to every rank."""
        self._run(*self._resolve("bcast", array, "sum", root, algorithm, chunk_bytes))

    def reduce(self, array: np.ndarray, root: int = 0, op: str = "sum", algorithm: str = "auto",
               out: np.ndarray | None = None, chunk_bytes: int = 0) -> None:
        """Reduces over ranks into root's array (or `out`)."""
        self._run(*self._resolve("reduce", array, op, root, algorithm, chunk_bytes, out))

    def allreduce(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                  out: np.ndarray | None = None, chunk_bytes: int = 0) -> None:
        """Reduces over ranks into every rank's array (or `out`)."""
        self._run(*self._resolve("allreduce", array, op, 0, algorithm, chunk_bytes, out))

    def allreduce_shared(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                         chunk_bytes: int = 0) -> np.ndarray:
        """Reduces over ranks into one array that all ranks of a node share: no copies of the result are made.

        Args:
            array: host memory from `alloc`.
            op, chunk_bytes: as the class has them.
            algorithm: one that starts with M.

        Returns:
            A flat read-only view of the array of the node's first rank. It holds the result until that rank writes its
            array again, which the node's ranks must have left to it by a collective call (a barrier will do).
        """
        signature, flat = self.algorithms.shared_result(array, op, algorithm, chunk_bytes)
        if isinstance(self._ranks, OneRank) or self.n_ranks == 1 or flat.size == 0:
            result: np.ndarray = flat.view()
            result.flags.writeable = False
            return result
        self._run(signature, flat, flat)
        return self._ranks.windows.on_rank(flat, 0)

    def reduce_scatter(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                       out: np.ndarray | None = None, chunk_bytes: int = 0) -> None:
        """Reduces each rank's own `part` of the arrays over ranks into that part of its array (or `out`)."""
        self._run(*self._resolve("reduce_scatter", array, op, 0, algorithm, chunk_bytes, out))

    def allgather(self, array: np.ndarray, algorithm: str = "auto", chunk_bytes: int = 0) -> None:
        """Copies every rank's own `part` of the array to all ranks."""
        self._run(*self._resolve("allgather", array, "sum", 0, algorithm, chunk_bytes))

    def ibcast(self, array: np.ndarray, root: int = 0, algorithm: str = "auto", chunk_bytes: int = 0,
               after: Any = None) -> Request:
        """Starts `bcast`; the helper thread carries it on."""
        return self._submit(*self._resolve("bcast", array, "sum", root, algorithm, chunk_bytes, None, True), after)

    def ireduce(self, array: np.ndarray, root: int = 0, op: str = "sum", algorithm: str = "auto",
                out: np.ndarray | None = None, chunk_bytes: int = 0, after: Any = None) -> Request:
        """Starts `reduce`; the helper thread carries it on."""
        return self._submit(*self._resolve("reduce", array, op, root, algorithm, chunk_bytes, out, True), after)

    def iallreduce(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                   out: np.ndarray | None = None, chunk_bytes: int = 0, after: Any = None) -> Request:
        """Starts `allreduce`; the helper thread carries it on."""
        return self._submit(*self._resolve("allreduce", array, op, 0, algorithm, chunk_bytes, out, True), after)

    def ireduce_scatter(self, array: np.ndarray, op: str = "sum", algorithm: str = "auto",
                        out: np.ndarray | None = None, chunk_bytes: int = 0, after: Any = None) -> Request:
        """Starts `reduce_scatter`; the helper thread carries it on."""
        return self._submit(*self._resolve("reduce_scatter", array, op, 0, algorithm, chunk_bytes, out, True), after)

    def iallgather(self, array: np.ndarray, algorithm: str = "auto", chunk_bytes: int = 0,
                   after: Any = None) -> Request:
        """Starts `allgather`; the helper thread carries it on."""
        return self._submit(*self._resolve("allgather", array, "sum", 0, algorithm, chunk_bytes, None, True), after)

    def alloc(self, n_elems: int, dtype: Any = np.float32, memory: str = "host") -> np.ndarray:
        """Allocates a zeroed flat array that the other ranks of the node have mapped: collectives are fastest there.

        Args:
            n_elems: its length, the same on every rank; slices of the array are as good.
            dtype: of its elements.
            memory: "host", or "device" for a CuPy array on the current GPU (on a GPU of its own where CUDA IPC cannot
                be had).

        Raises:
            CommError: on every rank, where lengths differ, memory cannot be shared or there is not as much (by
                MemAvailable and the limits of control groups, over the node's ranks), or a rank has no GPU.
        """
        array: np.ndarray = self._ranks.alloc(arguments.allocation(n_elems, dtype, memory))
        return array

    def describe_device(self) -> str:
        """Says how device buffers travel among these ranks. Every rank calls it; CommError without a GPU."""
        return self._ranks.describe_device()

    def wait_for_device(self) -> None:
        """Returns when the device has done what this rank's collectives have queued: their results are right. Raises
        RankLost where a rank is lost that they may have needed, CommError where work on the device has failed."""
        self._ranks.wait_for_device()

    def message_pair(self, array: np.ndarray) -> Callable[[], None]:
        """Makes a call that sends the array from rank 0 to rank 1 and back, over messages that are set up once."""
        return self._ranks.message_pair(array)

    @property
    def messages(self) -> PointToPoint:
        """Sends and receives between two ranks (isend, irecv, iprobe, any source); CommError on one rank."""
        return self._ranks.messages

    def fault_tolerant_messages(self) -> FaultTolerantMessages:
        """Makes messages that survive the loss of ranks. Every rank calls it; CommError on one rank."""
        return self._ranks.fault_tolerant_messages()

    lasting_messages = fault_tolerant_messages  # its name before

    def bcast_object(self, value: Any = None, root: int = 0) -> Any:
        """Gives root's (picklable) value to every rank."""
        return self._ranks.exchange("bcast", value, root)

    def gather_objects(self, value: Any, root: int = 0) -> list[Any] | None:
        """Gives every rank's value, in rank order, to root; None to the others."""
        found = self._ranks.exchange("gather", value, root)
        return None if found is None else list(found)

    def allgather_objects(self, value: Any) -> list[Any]:
        """Gives every rank's value, in rank order, to every rank."""
        return list(self._ranks.exchange("allgather", value))

    def agree(self, value: Any, what: str) -> None:
        """Raises the same CommError on every rank unless all ranks came with the same value of `what`."""
        values = self.allgather_objects(value)
        for rank, other in enumerate(values):
            if other != values[0]:
                raise CommError(f"{what} differs: rank 0 has {values[0]}, rank {rank} has {other}", everywhere=True)

    def install_excepthook(self) -> None:
        """From now on an uncaught exception in any thread prints one line with the rank and ends the job."""
        failure.install_excepthook(self)

    def _give_up(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        self.abort(1)

    def _made(self, comm: Any, nodes: Sequence[int], parent: Losses | None = None) -> Communicator:
        return Communicator(comm, self.deadline, nodes, is_ours=True, parent=parent)
