"""The ranks of a communicator that make a node."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from scaffe.collectives.errors import CommError
from scaffe.collectives.launch import RANKS_PER_NODE_VARIABLE


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

    node = kept(comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank))
    per_node = int(os.environ.get(RANKS_PER_NODE_VARIABLE) or 0)
    if node_of_rank is not None:
        if len(node_of_rank) != comm.size:
            raise CommError(f"node_of_rank needs a label for each of {comm.size} ranks, not {len(node_of_rank)}",
                            everywhere=True)
        return kept(node.Split(list(node_of_rank).index(node_of_rank[comm.rank]), comm.rank))
    return kept(node.Split(node.rank // per_node, comm.rank)) if per_node > 0 else node
