"""Algorithms whose lowest level is the node's shared memory: `M` within one node, `MC`, `MB`, `MR`, ... across nodes.

`M` is followed by the name of the pattern that runs among one rank of each node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from scaffe.collectives.planning import partition
from scaffe.collectives.planning.requirements import BY_PARTS
from scaffe.collectives.runtime.signature import CallSignature
from scaffe.collectives.topology import Topology


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that a plan is for.

    Attributes:
        topology: theirs.
        root: root's index among them.
        ranks: their ranks in the communicator; None for all.
        counts: elements of each one's part, where those are not as equal as can be.
    """

    topology: Topology
    root: int
    ranks: Sequence[int] | None = None
    counts: tuple[int, ...] | None = None


class Node(Protocol):
    """The ranks of a node as a group that works on memory which all of them have mapped."""

    def run(self, collective: str, array: Any, op: str = "sum", root: int = 0) -> None:
        """Run one collective in place among them; `root` counts within the node."""


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

    def run(self, signature: CallSignature, array: Any, across: Across) -> None:
        """Runs a collective on this rank's flat array; `across` runs its upper part among one rank of each node."""
        if self._topology.n_nodes == 1:
            collective = "reduce" if signature.leaves_one_per_node else signature.collective
            self._node.run(collective, array, signature.op, signature.root)
        elif signature.collective in BY_PARTS:
            self._by_parts(signature, array, across)
        else:
            self._whole(signature, array, across)

    def _whole(self, signature: CallSignature, array: Any, across: Across) -> None:
        """Reduces to a leader of each node, goes across, broadcasts: as far as needed. Root leads its node."""
        root_node = self._topology.node_of_rank[signature.root]
        leaders = [signature.root if node == root_node else ranks[0] for node, ranks in enumerate(self._topology.nodes)]
        own_node = self._topology.node_of_rank[self._rank]
        leader = self._topology.nodes[own_node].index(leaders[own_node])
        if signature.collective != "bcast":
            self._node.run("reduce", array, signature.op, leader)
        if self._rank == leaders[own_node]:
            across(array, Group(Topology.flat(len(leaders)), root_node, leaders))
        if signature.collective != "reduce":
            self._node.run("bcast", array[:0] if signature.leaves_one_per_node else array, "sum", leader)

    def _by_parts(self, signature: CallSignature, array: Any, across: Across) -> None:
        """A node's ranks own one block together: its leader scatters or gathers blocks across the nodes."""
        bounds = partition.all_bounds(self._topology.n_ranks, array.size)
        own_node = self._topology.nodes[self._topology.node_of_rank[self._rank]]
        counts = tuple(bounds[ranks[-1] + 1] - bounds[ranks[0]] for ranks in self._topology.nodes)
        if signature.collective == "reduce_scatter":
            self._node.run("reduce", array, signature.op, 0)
        else:
            for node_rank, rank in enumerate(own_node):
                self._node.run("bcast", array[bounds[rank] : bounds[rank + 1]], "sum", node_rank)
        if self._rank == own_node[0]:
            across(array, Group(Topology.flat(len(counts)), 0, self._topology.leaders, counts))
        block = slice(bounds[own_node[0]], bounds[own_node[-1] + 1])
        self._node.run("bcast", array[block] if signature.collective == "reduce_scatter" else array, "sum", 0)
