"""Trees over ranks: chains, binomial trees and compositions of them, and two binary trees at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import BY_NODE, TREE, Pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Step, chunks
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


EDGES: dict[str, Callable[[Sequence[int]], list[Edge]]] = {
    "C": lambda ranks: list(pairwise(ranks)),
    "B": lambda ranks: [(ranks[place & (place - 1)], ranks[place]) for place in range(1, len(ranks))],
}
"""(parent, child) pairs of a tree rooted at ranks[0]: a chain; a binomial tree, where i's parent is i with its lowest 1
bit zero."""


def composed_edges(pattern: Pattern, topology: Topology, root: int) -> list[Edge]:
    """Edges of a composed tree, lowest level first: the trees within groups, then the next level over their leaders.

    Groups may span nodes, unless their level or a later one groups by node.
    """
    ranks: Sequence[int] = topology.order(root)
    edges: list[Edge] = []
    for level, letter in enumerate(pattern.levels[:-1]):
        sizes = pattern.group_ranks[level:]
        within = topology.cut_by_node(ranks) if BY_NODE in sizes else [tuple(ranks)]
        groups = [group for part in within for group in cut(part, sizes[0] or len(part))]
        for group in groups:
            edges += EDGES[letter](group)
        ranks = [group[0] for group in groups]
    return edges + EDGES[pattern.levels[-1]](ranks)


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
    """Builds the tree of `pattern` (`C`, `B`, `CB-8`, ...) with its root at rank `root`. Raises CommError: the pattern
    is not a tree."""
    if pattern.shape != TREE:
        raise CommError(f"algorithm {pattern.name!r} is no tree: trees are B, C and compositions such as CB-8")
    return from_edges(root, topology.n_ranks, composed_edges(pattern, topology, root))


CHUNKS_PER_LEVEL = 3
"""How many chunks later a rank's step is due for each level between it and the step that it waits for: two messages of
a parent to its children, and a share of the other tree's."""


@lru_cache(maxsize=64)
def build_two_trees(topology: Topology, root: int) -> tuple[Tree, Tree]:
    """Builds both trees, rooted at `root`, over at least 2 ranks."""
    order = topology.order(root)
    n_below = len(order) - 1
    edges = _in_order(1, n_below, 0)
    other = {0: 0} | {number: n_below + 1 - number if n_below % 2 == 0 else number % n_below + 1
                      for number in range(1, n_below + 1)}
    moved = [(other[parent], other[child]) for parent, child in edges]
    first, second = (from_edges(root, len(order), [(order[parent], order[child]) for parent, child in pairs])
                     for pairs in (edges, moved))
    return first, second


def interleaved(call: Call, levels: Sequence[int], steps_of_chunk: Callable[[int, int, int], list[Step]]) -> list[Step]:
    """Orders the steps of all chunks by time slot: those of chunk i run in slot i + CHUNKS_PER_LEVEL * levels[i % 2].

    The order cannot deadlock if every message is received on a higher level than it is sent on.

    Args:
        steps_of_chunk: gives the steps of a chunk from its tree (0 or 1), start and stop.
    """
    due = sorted((number + CHUNKS_PER_LEVEL * levels[number % 2], number, interval)
                 for number, interval in enumerate(chunks(0, call.n_elems, call.chunk_elems)))
    return [step for _, number, interval in due for step in steps_of_chunk(number % 2, *interval)]


def _in_order(first: int, last: int, parent: int) -> list[Edge]:
    """Edges of the tree over numbers first .. last under `parent`; inside are those that most powers of 2 divide."""
    if first > last:
        return []
    top = max(range(first, last + 1), key=lambda number: number & -number)
    return [(parent, top), *_in_order(first, top - 1, top), *_in_order(top + 1, last, top)]
