"""Two binary trees over the same ranks in which every rank is a leaf of at least one.

Number the ranks other than the root 1 .. n. The first tree is an in-order binary tree: even numbers are inner nodes,
odd numbers are leaves. The second tree swaps the two roles: it is the mirror image of the first (n even) or the first
shifted by one (n odd). Each tree carries every other chunk, so a rank sends about as much as it receives. Source:
Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Step, chunks
from scaffe.collectives.planning.tree import Edge, Tree, from_edges
from scaffe.collectives.topology import Topology

CHUNKS_PER_LEVEL = 3
"""How many chunks later a rank's step is due for each level between it and the step that it waits for: two messages of
a parent to its children, and a share of the other tree's."""


@lru_cache(maxsize=64)
def build(topology: Topology, root: int) -> tuple[Tree, Tree]:
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
        call: the collective call.
        levels: this rank's level in each of the two trees.
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
