"""Broadcast down two binary trees at once, even chunks along one and odd chunks along the other.

Every rank is inside at most one of the trees, so with two chunks or more it sends at most n_elems, as in a chain, but
the pipeline is only ceil(log2 P) ranks deep.
Cost, a rank: receives n_elems, sends at most n_elems, the first chunk in ceil(log2 P) rounds.
Wins: medium and large messages on many ranks of one to a node. Source: Sanders, Speck, Träff 2009 (see `twotree`).
"""

from __future__ import annotations

from scaffe.collectives.planning import trees as twotree
from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.plan import Recv, Send, Step

NAMES = ("T",)
COST_CHUNKS = 2


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; every rank ends with the root's buffer."""
    trees = twotree.build_two_trees(call.topology, call.root)

    def steps(which: int, start: int, stop: int) -> list[Step]:
        parent, children = trees[which].parents[rank], trees[which].children[rank]
        received = [Recv(parent, start, stop)] if parent >= 0 else []
        return [*received, *(Send(child, start, stop) for child in children)]

    return twotree.interleaved(call, [tree.depths[rank] for tree in trees], steps)


def cost(n_ranks: int) -> Cost:
    """With two chunks: rounds, and n_elems that the busiest ranks send and receive."""
    return Cost((n_ranks - 1).bit_length(), 1, 1)
