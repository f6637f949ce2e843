"""Algorithms whose lowest level is the node's shared memory: `M` within one node, `MC`, `SR`, ... across nodes.

`M` and `S` are followed by the name of the pattern that runs across; `planning.levels` says which phases they have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from scaffe.collectives.planning.levels import Group, Levels, Part, Phase, Within
from scaffe.collectives.runtime.signature import CallSignature
from scaffe.collectives.shared.schedule import DOUBLED
from scaffe.collectives.topology import Topology


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
            if isinstance(phase, Within):
                part = array[phase.start : phase.stop]
                self._node.run(phase.collective, part, signature.op, phase.root, phase.parts)
            else:
                across(array, phase.group)

    def _planned(self, signature: CallSignature) -> list[Phase]:
        levels = Levels(signature.collective, self._topology, signature.n_elems, signature.root,
                        signature.leaves_one_per_node)
        return levels.phases(self._rank, signature.algorithm.is_split)
