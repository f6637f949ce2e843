"""Trees over ranks, given by each rank's parent and children: chains, binomial trees and compositions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.pattern import BY_NODE, Pattern
from scaffe.collectives.planning.registry import TREE
from scaffe.collectives.topology import Topology, cut

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tree:
    """A rooted tree over ranks 0 .. n_ranks-1. Every sequence has one entry per rank.

    Attributes:
        parents: the rank above; -1 for the root.
        children: the ranks below, in the order in which their values are added: lower levels first, then small
            subtrees first, since those are ready earliest.
        depths: number of edges up to the root.
        heights: number of edges down to the farthest leaf.
    """

    root: int
    parents: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    depths: tuple[int, ...]
    heights: tuple[int, ...]


def chain_edges(ranks: Sequence[int]) -> list[Edge]:
    """(parent, child) pairs of a chain whose root is ranks[0]."""
    return list(pairwise(ranks))


def binomial_edges(ranks: Sequence[int]) -> list[Edge]:
    """(parent, child) pairs of a binomial tree rooted at ranks[0]: the parent of i is i with its lowest 1 bit zero."""
    return [(ranks[place & (place - 1)], ranks[place]) for place in range(1, len(ranks))]


EDGES = {"C": chain_edges, "B": binomial_edges}


def composed_edges(pattern: Pattern, topology: Topology, root: int) -> list[Edge]:
    """Edges of a composed tree, lowest level first: the trees within groups, then the next level over their leaders."""
    ranks: Sequence[int] = topology.order(root)
    edges: list[Edge] = []
    for level, letter in enumerate(pattern.levels[:-1]):
        groups = _groups(ranks, pattern.group_ranks[level:], topology)
        for group in groups:
            edges += EDGES[letter](group)
        ranks = [group[0] for group in groups]
    return edges + EDGES[pattern.levels[-1]](ranks)


def _groups(ranks: Sequence[int], sizes: tuple[int, ...], topology: Topology) -> list[tuple[int, ...]]:
    """Groups of sizes[0] ranks. They may span nodes, unless this level or a later one groups by node."""
    within = topology.cut_by_node(ranks) if BY_NODE in sizes else [tuple(ranks)]
    return [group for part in within for group in cut(part, sizes[0] or len(part))]


def from_edges(root: int, n_ranks: int, edges: Sequence[Edge]) -> Tree:
    """The tree of (parent, child) pairs; children keep the order of their pairs."""
    parents, depths, heights = [-1] * n_ranks, [0] * n_ranks, [0] * n_ranks
    children: list[list[int]] = [[] for _ in range(n_ranks)]
    for parent, child in edges:
        parents[child] = parent
        children[parent].append(child)
    downward = [root]
    for rank in downward:
        for child in children[rank]:
            depths[child] = depths[rank] + 1
            downward.append(child)
    for rank in reversed(downward[1:]):
        heights[parents[rank]] = max(heights[parents[rank]], heights[rank] + 1)
    return Tree(root, tuple(parents), tuple(map(tuple, children)), tuple(depths), tuple(heights))


@lru_cache(maxsize=256)
def build(pattern: Pattern, topology: Topology, root: int = 0) -> Tree:
    """Builds the tree of `pattern` (`C`, `B`, `CB-8`, ...) with its root at rank `root`.

    Raises:
        CommError: the pattern is not a tree.
    """
    if pattern.shape != TREE:
        raise CommError(f"algorithm {pattern.name!r} is no tree: trees are B, C and compositions such as CB-8")
    return from_edges(root, topology.n_ranks, composed_edges(pattern, topology, root))
