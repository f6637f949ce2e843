"""Which rank sits on which node, and the groups that hierarchical algorithms are made of. Pure: no MPI."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain, groupby
from typing import TypeVar

from scaffe.collectives.errors import CommError

T = TypeVar("T")


class Topology:
    """The node of every rank. Nodes are numbered in the order of their first rank, whatever labels they came with."""

    def __init__(self, node_of_rank: Sequence[Hashable]) -> None:
        """Args:
            node_of_rank: any label of each rank's node: equal labels, same node.

        Raises:
            CommError: there are no ranks.
        """
        if len(node_of_rank) == 0:
            raise CommError("a topology needs at least 1 rank, got none")
        number: dict[Hashable, int] = {}
        self.node_of_rank = tuple(number.setdefault(label, len(number)) for label in node_of_rank)
        ranks_by_node: list[list[int]] = [[] for _ in number]
        for rank, node in enumerate(self.node_of_rank):
            ranks_by_node[node].append(rank)
        self.nodes: tuple[tuple[int, ...], ...] = tuple(map(tuple, ranks_by_node))
        self._hash = hash(self.node_of_rank)

    @classmethod
    def from_ranks_per_node(cls, n_ranks: int, ranks_per_node: int) -> Topology:
        """Puts consecutive ranks on nodes of `ranks_per_node` each, the last one with what is left.

        Raises:
            CommError: `ranks_per_node` is below 1.
        """
        if ranks_per_node < 1:
            raise CommError(f"a node needs at least 1 rank, not {ranks_per_node}")
        return cls([rank // ranks_per_node for rank in range(n_ranks)])

    @classmethod
    def flat(cls, n_ranks: int) -> Topology:
        """Puts every rank on a node of its own."""
        return cls(range(n_ranks))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.node_of_rank == other.node_of_rank

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Topology({self.node_of_rank})"

    @property
    def n_ranks(self) -> int:
        """How many ranks there are."""
        return len(self.node_of_rank)

    @property
    def n_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of every node, in the order of nodes."""
        return tuple(ranks[0] for ranks in self.nodes)

    def leader(self, rank: int) -> int:
        """The first rank of the node that `rank` sits on."""
        return self.nodes[self.node_of_rank[rank]][0]

    def node_rank(self, rank: int) -> int:
        """The index of `rank` among the ranks of its node."""
        return self.nodes[self.node_of_rank[rank]].index(rank)

    def same_node(self, rank: int, other: int) -> bool:
        """Whether two ranks share a node."""
        return self.node_of_rank[rank] == self.node_of_rank[other]

    @property
    def shape(self) -> str:
        """Ranks per node as text: `8x16` is 8 nodes of 16 ranks, `2x4+1x3` two of 4 and one of 3. Order is left out."""
        sizes = sorted((len(ranks) for ranks in self.nodes), reverse=True)
        return "+".join(f"{len(list(run))}x{n_ranks}" for n_ranks, run in groupby(sizes))

    def order(self, root: int = 0) -> tuple[int, ...]:
        """Orders all ranks node by node: root's node first and root first in it; the others follow cyclically.

        Raises:
            CommError: root is not a rank.
        """
        if not 0 <= root < self.n_ranks:
            raise CommError(f"root must be a rank below {self.n_ranks}, not {root}")
        nodes = _rotate(self.nodes, self.node_of_rank[root])
        return tuple(chain(_rotate(nodes[0], nodes[0].index(root)), *nodes[1:]))

    def groups(self, group_ranks: int, root: int = 0) -> list[tuple[int, ...]]:
        """Cuts `order(root)` into groups of `group_ranks`, the last one shorter; a group may span nodes."""
        return cut(self.order(root), group_ranks)

    def groups_by_node(self, root: int = 0) -> list[tuple[int, ...]]:
        """Cuts `order(root)` where the node changes: groups of unequal size, none of which spans nodes."""
        return self.cut_by_node(self.order(root))

    def cut_by_node(self, ranks: Sequence[int]) -> list[tuple[int, ...]]:
        """Cuts `ranks` where the node changes."""
        return [tuple(group) for _, group in groupby(ranks, key=self.node_of_rank.__getitem__)]


def cut(ranks: Sequence[int], group_ranks: int) -> list[tuple[int, ...]]:
    """Cuts `ranks` into groups of `group_ranks`, the last one shorter.

    Raises:
        CommError: `group_ranks` is below 1.
    """
    if group_ranks < 1:
        raise CommError(f"a group needs at least 1 rank, not {group_ranks}")
    return [tuple(ranks[start:start + group_ranks]) for start in range(0, len(ranks), group_ranks)]


def _rotate(items: Sequence[T], first: int) -> tuple[T, ...]:
    return (*items[first:], *items[:first])
