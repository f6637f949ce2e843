"""Reduce up two binary trees at once, even chunks along one and odd chunks along the other.

Cost, a rank: sends n_elems (the root none), receives at most n_elems, the first chunk in ceil(log2 P) rounds: a
chain's traffic with a far shorter pipeline.
Wins: medium and large messages on many ranks of one to a node. Source: Sanders, Speck, Träff 2009 (see `twotree`).
Sum order: an element's chunk decides its tree, so bits depend on the chunk length and on the place in the buffer:
layer by layer and whole buffers differ in rounding.
"""

from __future__ import annotations

from scaffe.collectives.planning import trees as twotree
from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.plan import RecvReduce, Send, Step

NAMES = ("T",)
SUM_DEPENDS_ON = ("position", "chunks")
COST_CHUNKS = 2


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; the root ends with the reduction, the others with partial values."""
    trees = twotree.build_two_trees(call.topology, call.root)

    def steps(which: int, start: int, stop: int) -> list[Step]:
        parent, children = trees[which].parents[rank], trees[which].children[rank]
        sent = [Send(parent, start, stop)] if parent >= 0 else []
        return [*(RecvReduce(child, start, stop) for child in children), *sent]

    return twotree.interleaved(call, [tree.heights[rank] for tree in trees], steps)


def cost(n_ranks: int) -> Cost:
    """With two chunks: rounds, and n_elems that the busiest ranks send and receive."""
    return Cost((n_ranks - 1).bit_length(), 1, 1)
