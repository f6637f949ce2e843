"""The ranks of a communicator that make a node."""

from __future__ import annotations

import socket
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from scaffe.collectives.errors import CommError
from scaffe.collectives.loss.fence import this_process
from scaffe.environment import RANKS_PER_NODE


def node_comm(comm: Any, node_of_rank: Sequence[Hashable] | None, kept: Callable[[Any], Any]) -> Any:
    """The ranks that share memory with this one and, where labels are given, have its label.

    Args:
        comm: mpi4py communicator of all ranks.
        node_of_rank: as Communicator has it.
        kept: is given every communicator that is made, and returns it.

    Raises:
        CommError: on all ranks, where there is not one label per rank.
    """
    from mpi4py import MPI

    node = kept(_of_several_starts(comm) if _has_strangers(comm) else
                comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank))
    per_node = RANKS_PER_NODE.get()
    if node_of_rank is not None:
        if len(node_of_rank) != comm.size:
            raise CommError(f"node_of_rank needs a label for each of {comm.size} ranks, not {len(node_of_rank)}",
                            everywhere=True)
        return kept(node.Split(list(node_of_rank).index(node_of_rank[comm.rank]), comm.rank))
    return kept(node.Split(node.rank // per_node, comm.rank)) if per_node > 0 else node


def _has_strangers(comm: Any) -> bool:
    """Whether ranks have been started apart from one another: of these Open MPI 5 does not know who shares memory."""
    from mpi4py import MPI

    return bool(MPI.Group.Difference(comm.Get_group(), MPI.COMM_WORLD.Get_group()).size)


def _of_several_starts(comm: Any) -> Any:
    """The ranks on this one's machine, which see its processes."""
    machine = (*this_process().machine, socket.gethostname())
    return comm.Split(comm.allgather(machine).index(machine), comm.rank)
