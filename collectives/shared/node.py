"""Collectives among the ranks of one node on memory that all of them have mapped: algorithm `M`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from scaffe.collectives.errors import CommError, RankLost
from scaffe.collectives.fault_tolerance.fencing import SuspendAwareClock, this_process
from scaffe.collectives.planning.datatypes import NAMES, OPS
from scaffe.collectives.shared import kernels, passes, schedule
from scaffe.collectives.shared.window import Windows
from scaffe.environment import RANKS_PER_NODE

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

LIVENESS_INTERVAL = np.array([0, 200_000_000], np.int64)  # seconds, nanoseconds between checks whether peers are alive
POLLS = 100  # of a word, yielding the core in between, before sleeping: measured with more ranks than cores
STAGE_BYTES = 512 << 10  # a rank's share of the staging memory: the node's shares stay in the last-level cache


def node_comm(comm: Any, node_of_rank: Sequence[Hashable] | None, register: Callable[[Any], Any]) -> Any:
    """Makes a communicator of the ranks that share memory with this one and, where labels are given, have its label.

    Args:
        register: is given every communicator that is made, and returns it.

    Raises:
        CommError: on all ranks, where there is not one label per rank.
    """
    from mpi4py import MPI

    if MPI.Group.Difference(comm.Get_group(), MPI.COMM_WORLD.Get_group()).size:
        # some were started separately: Open MPI 5 does not know which share memory. Those do that see one's processes
        machine = (*this_process().machine, socket.gethostname())
        node = register(comm.Split(comm.allgather(machine).index(machine), comm.rank))
    else:
        node = register(comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank))
    per_node = RANKS_PER_NODE.get()
    if node_of_rank is not None:
        if len(node_of_rank) != comm.size:
            raise CommError(f"node_of_rank needs a label for each of {comm.size} ranks, not {len(node_of_rank)}",
                            everywhere=True)
        return register(node.Split(list(node_of_rank).index(node_of_rank[comm.rank]), comm.rank))
    return register(node.Split(node.rank // per_node, comm.rank)) if per_node > 0 else node


class NodeCall(NamedTuple):
    """What a rank calls: equal on all ranks of the node, or they disagree. ``root``: of reduce, bcast and gather;
    ``location``: window number and byte offset in it; None for private memory."""

    collective: str
    n_elems: int
    dtype: str
    op: str
    root: int
    location: tuple[int, int] | None
    parts: tuple[schedule.Part, ...] = ()


class NodeGroup:
    """Collectives among the ranks of one node. One object per thread: it owns one channel and its staging memory."""

    def __init__(self, node_comm: Intracomm, windows: Windows, deadline: float,
                 waiting: Callable[[], None] = lambda: None) -> None:
        """Sets the group up; all ranks of the node call it. ``deadline``: seconds after which a missing peer is an
        error; ``waiting``: called now and then while peers are waited for."""
        self._comm = node_comm
        self.rank, self.n_ranks = node_comm.rank, node_comm.size
        self._deadline, self._waiting = deadline, waiting
        self._windows = windows
        self._names = node_comm.allgather((os.getpid(), node_comm.rank))
        self._memory = windows.allocate(passes.channel_bytes(self.n_ranks))
        self._channel = int(windows.locate(self._memory).addresses[0])
        self._epoch = 0
        self._stage = windows.allocate(STAGE_BYTES)
        self._stage_slice = windows.locate(self._stage)
        self._blocks: dict[np.dtype[Any], np.ndarray] = {}

    def run(self, collective: str, array: np.ndarray, op: str = "sum", root: int = 0,
            parts: tuple[schedule.Part, ...] = ()) -> None:
        """Runs one collective: in place where all ranks' arrays lie in one window, else through staging memory.

        Args:
            collective: reduce, bcast, allreduce, reduce_scatter, allgather or gather.
            root: of reduce, bcast and gather.

        Raises:
            CommError: on every rank, when ranks call different collectives or pass different lengths, dtypes or places
                in windows; on the waiting ranks, when a peer is dead or late.
        """
        found = self._windows.find(array)
        location = None if found is None else (found.serial, found.offset)
        call = NodeCall(collective, array.size, NAMES[array.dtype], op, root, location, parts)
        if found is not None:
            tables = _tables(collective, self.n_ranks, array.size, root, array.itemsize, 0, array.size, parts)
            self._pass(call, tables, found.addresses, array.dtype)
        else:
            self._staged(call, array)

    def free(self) -> None:
        del self._memory, self._stage, self._stage_slice

    def meet(self, call: NodeCall) -> None:
        """Returns when all ranks of the node have come with the same call. Raises CommError as `run` does."""
        nothing = _tables("allreduce", self.n_ranks, 0, 0, 1, 0, 0)
        self._pass(call, nothing, self._stage_slice.addresses, np.dtype(np.float32))

    def _staged(self, call: NodeCall, array: np.ndarray) -> None:
        slot, stage = self._stage.view(array.dtype), self._stage_slice
        step = slot.size
        for start in range(0, max(array.size, 1), step):
            end = min(start + step, array.size)
            tables = _tables(call.collective, self.n_ranks, array.size, call.root, array.itemsize, start, end,
                             call.parts)
            for first, last in tables.reads[self.rank]:
                slot[first - start : last - start] = array[first:last]
            self._pass(call, tables, stage.addresses - start * array.itemsize, array.dtype)
            for first, last in tables.writes[self.rank]:
                array[first:last] = slot[first - start : last - start]

    def _pass(self, call: NodeCall, tables: schedule.Tables, addresses: np.ndarray, dtype: np.dtype[Any]) -> None:
        self._epoch = (self._epoch + 1) & 0xFFFFFFFF
        if (block := self._blocks.get(dtype)) is None:
            block = self._blocks[dtype] = kernels.block_for(dtype)
        clock: SuspendAwareClock | None = None  # of a wait that takes longer than one look
        while True:
            status = passes.run_pass(
                self._channel, self.rank, self.n_ranks, np.uint32(self._epoch), clock is not None, _digest(call),
                tables.chunks, tables.sources, tables.targets, addresses, block, OPS.index(call.op),
                POLLS, LIVENESS_INTERVAL,
            )  # fmt: skip
            if status == passes.COMPLETE:
                return
            if status == passes.MISMATCHED:
                self._disagree(call)
            clock = clock or SuspendAwareClock()
            self._check_peers(clock.seconds())

    def _disagree(self, call: NodeCall) -> NoReturn:
        everyone = self._comm.allgather(call)
        rank = next(rank for rank, other in enumerate(everyone) if other != everyone[0])
        raise CommError(
            f"ranks of one node disagree: rank {self._names[0][1]} has {_text(everyone[0])}, "
            f"rank {self._names[rank][1]} has {_text(everyone[rank])}", everywhere=True,
        )

    def _check_peers(self, waited: float) -> None:
        self._waiting()
        for rank in passes.missing(self._channel, self.n_ranks, np.uint32(self._epoch)):
            pid, name = self._names[rank]
            if not alive(pid):
                raise RankLost(self._names[self.rank][1], [name], f": its process {pid} is dead")
            if waited > self._deadline:
                raise CommError(f"rank {self._names[self.rank][1]} waited {waited:.0f} s for rank {name}")


def _text(call: NodeCall) -> str:
    where = f"window {call.location[0]} at byte {call.location[1]}" if call.location else "private memory"
    return f"{call.collective} of {call.n_elems} x {call.dtype} ({call.op}, root {call.root}) in {where}"


def alive(pid: int) -> bool:
    """False when process `pid` is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - a path object costs more than the question
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@lru_cache(maxsize=4096)
def _digest(call: NodeCall) -> int:
    return int.from_bytes(blake2b(repr(call).encode(), digest_size=8).digest(), "little", signed=True)


_tables = lru_cache(maxsize=4096)(schedule.tables)
