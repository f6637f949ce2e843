"""Makes communicators of some ranks (those of a node, of a color, of a list)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from scaffe.collectives.errors import CommError
from scaffe.collectives.fault_tolerance.fencing import this_process
from scaffe.collectives.runtime.arguments import place_in_split
from scaffe.collectives.topology import Topology
from scaffe.environment import RANKS_PER_NODE


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


def split(comm: Any, topology: Topology, color: Any, key: Any,
          compare: Callable[[str, str], None]) -> tuple[Any, list[int]]:
    """Splits a communicator; arguments as in `Communicator.split`. Returns mpi4py's communicator of the ranks of this
    color, None without one; and the node of each of them."""
    from mpi4py import MPI

    fault = ""
    try:
        color, key = place_in_split(None if color == MPI.UNDEFINED else color, key)
    except CommError as error:
        fault = str(error)
    compare("split", fault and f"split: {fault}")
    made = comm.Split(MPI.UNDEFINED if color is None else color, key)
    if made == MPI.COMM_NULL:
        return None, []
    return made, [topology.node_of_rank[rank] for rank in made.allgather(comm.rank)]


def subset(comm: Any, topology: Topology, ranks: Sequence[int]) -> tuple[Any, list[int]]:
    """Makes a communicator of some ranks, who alone call it; returns as `split` does."""
    group = comm.Get_group()
    chosen = group.Incl(ranks)
    made = comm.Create_group(chosen)
    chosen.Free()
    group.Free()
    return made, [topology.node_of_rank[rank] for rank in ranks]
