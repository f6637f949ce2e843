"""The ranks that make a node, and algorithms whose lowest level is the memory they share: `M`, `MC`, `SR`, ..."""

from __future__ import annotations

import socket
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from scaffe.collectives.errors import CommError
from scaffe.collectives.fault_tolerance.fencing import this_process
from scaffe.collectives.planning.levels import Group, IntraNodePhase, Levels, Part, Phase
from scaffe.collectives.runtime.arguments import CallSignature
from scaffe.collectives.shared.schedule import DOUBLED
from scaffe.collectives.topology import Topology
from scaffe.environment import RANKS_PER_NODE


def node_comm(comm: Any, node_of_rank: Sequence[Hashable] | None, register: Callable[[Any], Any]) -> Any:
    """The ranks that share memory with this one and, where labels are given, have its label.

    Args:
        comm: mpi4py communicator of all ranks.
        node_of_rank: as Communicator has it.
        register: is given every communicator that is made, and returns it.

    Raises:
        CommError: on all ranks, where there is not one label per rank.
    """
    from mpi4py import MPI

    node = register(_of_several_starts(comm) if _has_strangers(comm) else
                comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank))
    per_node = RANKS_PER_NODE.get()
    if node_of_rank is not None:
        if len(node_of_rank) != comm.size:
            raise CommError(f"node_of_rank needs a label for each of {comm.size} ranks, not {len(node_of_rank)}",
                            everywhere=True)
        return register(node.Split(list(node_of_rank).index(node_of_rank[comm.rank]), comm.rank))
    return register(node.Split(node.rank // per_node, comm.rank)) if per_node > 0 else node


def _has_strangers(comm: Any) -> bool:
    """Whether ranks have been started apart from one another: of these Open MPI 5 does not know who shares memory."""
    from mpi4py import MPI

    return bool(MPI.Group.Difference(comm.Get_group(), MPI.COMM_WORLD.Get_group()).size)


def _of_several_starts(comm: Any) -> Any:
    """The ranks on this one's machine, which see its processes."""
    machine = (*this_process().machine, socket.gethostname())
    return comm.Split(comm.allgather(machine).index(machine), comm.rank)


class Node(Protocol):
    """The ranks of a node as a group that works on memory which all of them have mapped."""

    def run(self, collective: str, array: Any, op: str = "sum", root: int = 0, parts: tuple[Part, ...] = ()) -> None:
        """Run one collective in place among them; `root` and the owners of `parts` count within the node."""


Across = Callable[[Any, Group], None]
"""Runs a collective's upper part on this rank's array, among the ranks of a group."""


class SharedLevels:
    """The shared-memory part of algorithms for one engine."""

    def __init__(self, node: Node, topology: Topology, rank: int) -> None:
        """Args:
            node: this rank's node as a group.
            topology: of the communicator.
            rank: this one, in the communicator.
        """
        self._node, self._topology, self._rank = node, topology, rank
        self._phases = lru_cache(maxsize=4096)(self._planned)

    def run(self, signature: CallSignature, array: Any, across: Across) -> None:
        """Runs a collective on this rank's flat array; `across` runs its messages among one rank of each node."""
        if self._topology.n_nodes == 1:
            collective = "reduce" if signature.leaves_one_per_node else signature.collective
            self._node.run(collective + DOUBLED * signature.algorithm.is_doubled, array, signature.op, signature.root)
            return
        for phase in self._phases(signature):
            if isinstance(phase, IntraNodePhase):
                part = array[phase.start : phase.stop]
                self._node.run(phase.collective, part, signature.op, phase.root, phase.parts)
            else:
                across(array, phase.group)

    def _planned(self, signature: CallSignature) -> list[Phase]:
        levels = Levels(signature.collective, self._topology, signature.n_elems, signature.root,
                        signature.leaves_one_per_node)
        return levels.phases(self._rank, signature.algorithm.is_split)
