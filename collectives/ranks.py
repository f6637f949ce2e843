"""What the ranks of an MPI job share below the Communicator: nodes, windows, and an engine for each thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import numpy as np

from .engine import Engine, Job
from .progress import ProgressThread
from .request import Request
from .shared.node import NodeGroup
from .shared.window import Windows
from .shared_levels import SharedLevels
from .topology import Topology
from .watch import Watch

RANKS_PER_NODE_VARIABLE = "SCAFFE_RANKS_PER_NODE"


class Ranks:
    """Engines over one MPI communicator: one for the caller's thread, one for the helper thread."""

    def __init__(self, comm, deadline: float, give_up: Callable[[str], None]) -> None:
        """`comm`: mpi4py communicator that is ours alone. `give_up(line)`: ends the job when a peer is missing."""
        self.comm = comm
        self._deadline, self._give_up = deadline, give_up
        self._node_comm = _node_comm(comm)
        self.topology = Topology(comm.allgather(self._node_comm.bcast(comm.rank)))
        self.windows = Windows(self._node_comm)
        self.engine = self._make_engine()
        self._helper = self._make_engine(patient=True) if _may_use_threads() else None
        self._progress = ProgressThread()

    def run(self, job: Job, array: np.ndarray, source: np.ndarray) -> None:
        """Run `job` on the caller's thread. Raises CommError on every rank where the ranks do not agree on it."""
        self.engine.agree(job)
        self.engine.run(job, array, source)

    def submit(self, label: str, job: Job, array: np.ndarray, source: np.ndarray) -> Request:
        """Run `job` on the helper thread, or at once where MPI does not let two threads call it.

        The ranks agree on the job here, in the order of the callers' program. Raises CommError as `run` does.
        """
        self.engine.agree(job)
        helper = self._helper
        if helper is None:
            self.engine.run(job, array, source)
            return Request.completed(label)
        return self._progress.submit(label, lambda: helper.run(job, array, source), helper.watch.text)

    def _make_engine(self, patient: bool = False) -> Engine:
        node = NodeGroup(self._node_comm.Dup(), self.windows, self._deadline)
        levels = SharedLevels(node, self.topology, self.comm.rank)
        watch = Watch(self.comm.rank, self._deadline, self._give_up)
        return Engine(self.comm.Dup(), self.topology, levels, watch, patient)


def _node_comm(comm):
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    per_node = int(os.environ.get(RANKS_PER_NODE_VARIABLE) or 0)
    return node.Split(node.rank // per_node, comm.rank) if per_node > 0 else node


def _may_use_threads() -> bool:
    from mpi4py import MPI

    if MPI.Query_thread() >= MPI.THREAD_MULTIPLE:
        return True
    if MPI.COMM_WORLD.rank == 0:
        sys.stderr.write("collectives: MPI does not grant MPI_THREAD_MULTIPLE, which the helper thread needs: "
                         "non-blocking collectives run when they are called\n")
    return False
