"""Algorithms whose lowest level is the node's shared memory: `M` within one node, `MC`, `MB`, `MR`, ... across nodes.

`M` is followed by the name of the algorithm that runs among one rank of each node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import partition, planners
from scaffe.collectives.runtime.signature import CallSignature
from scaffe.collectives.topology import Topology

BY_PARTS = ("reduce_scatter", "allgather")


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that a plan is for: their topology, root's place among them, their ranks in the communicator, and the
    elements of each one's part where those are not as equal as can be."""

    topology: Topology
    root: int
    ranks: Sequence[int] | None = None
    counts: tuple[int, ...] | None = None


def above(algorithm: str) -> str | None:
    """The algorithm above the shared-memory level ('' for none), or None where `algorithm` has no such level."""
    return algorithm[1:] if algorithm.startswith("M") and algorithm.lower() != "mpi" else None


def spans_nodes(collective: str, topology: Topology) -> bool:
    """Whether shared memory may lie below an algorithm across nodes: parts of a node's ranks must lie together."""
    return collective not in BY_PARTS or all(ranks[-1] - ranks[0] == len(ranks) - 1 for ranks in topology.nodes)


def require(collective: str, algorithm: str, topology: Topology) -> None:
    """Raise CommError where `algorithm` cannot do `collective` on the ranks of `topology`."""
    upper = above(algorithm)
    name = algorithm if upper is None else upper
    if upper is not None and topology.n_nodes > 1:
        if not upper:
            raise CommError(f"algorithm M needs all ranks on one node, these are on {topology.n_nodes}: add the "
                            "algorithm across nodes, as in MC")
        if not spans_nodes(collective, topology):
            raise CommError(f"algorithm {algorithm!r} cannot do {collective} where the ranks of a node are not "
                            "consecutive")
    if name not in ("", "mpi") and not planners.can(collective, name):
        raise CommError(f"algorithm {algorithm!r} cannot do {collective}: "
                        f"{', '.join(planners.shapes(collective))} can")


class Node(Protocol):
    """The ranks of a node as a group that works on memory which all of them have mapped."""

    def run(self, collective: str, array: Any, op: str = "sum", root: int = 0) -> None:
        """Run one collective in place among them; `root` counts within the node."""


class SharedLevels:
    """The shared-memory part of algorithms for the engine of one thread."""

    def __init__(self, node: Node, topology: Topology, rank: int) -> None:
        """`node`: this rank's node as a group; `rank`: this rank in the communicator of `topology`."""
        self._node, self._topology, self._rank = node, topology, rank

    def run(self, signature: CallSignature, array: Any, across: Callable[[Group], None]) -> None:
        """Run `signature`; `across(group)` runs its upper part, on this rank's array, among one rank of each node."""
        if self._topology.n_nodes == 1:
            collective = "reduce" if signature.is_one_a_node else signature.collective
            self._node.run(collective, array, signature.op, signature.root)
        elif signature.collective in BY_PARTS:
            self._by_parts(signature, array, across)
        else:
            self._whole(signature, array, across)

    def _whole(self, signature: CallSignature, array: Any, across: Callable[[Group], None]) -> None:
        """Reduce to a leader of each node, go across, broadcast: as far as it is needed. Root leads its node."""
        root_node = self._topology.node_of_rank[signature.root]
        leaders = [signature.root if node == root_node else ranks[0] for node, ranks in enumerate(self._topology.nodes)]
        own_node = self._topology.node_of_rank[self._rank]
        leader = self._topology.nodes[own_node].index(leaders[own_node])
        if signature.collective != "bcast":
            self._node.run("reduce", array, signature.op, leader)
        if self._rank == leaders[own_node]:
            across(Group(Topology.flat(len(leaders)), root_node, leaders))
        if signature.collective != "reduce":
            self._node.run("bcast", array[:0] if signature.is_one_a_node else array, "sum", leader)

    def _by_parts(self, signature: CallSignature, array: Any, across: Callable[[Group], None]) -> None:
        """A node's ranks own one block together: its leader scatters or gathers blocks across the nodes."""
        bounds = partition.all_bounds(self._topology.n_ranks, array.size)
        own_node = self._topology.nodes[self._topology.node_of_rank[self._rank]]
        counts = tuple(bounds[ranks[-1] + 1] - bounds[ranks[0]] for ranks in self._topology.nodes)
        if signature.collective == "reduce_scatter":
            self._node.run("reduce", array, signature.op, 0)
        else:
            for place, rank in enumerate(own_node):
                self._node.run("bcast", array[bounds[rank] : bounds[rank + 1]], "sum", place)
        if self._rank == own_node[0]:
            across(Group(Topology.flat(len(counts)), 0, self._topology.leaders, counts))
        block = slice(bounds[own_node[0]], bounds[own_node[-1] + 1])
        self._node.run("bcast", array[block] if signature.collective == "reduce_scatter" else array, "sum", 0)
