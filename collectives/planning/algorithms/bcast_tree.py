"""Broadcast down a tree, chunk by chunk: the reduction's tree run backwards.

Cost, a rank, k chunks: receives n_elems in k messages (the root none), sends n_elems to each child, the largest
subtree first. A chain takes one pass over the wire and P - 2 chunks, a binomial tree ceil(log2 P) passes (Thakur,
Rabenseifner, Gropp 2005, its broadcast section; pipelined chains: Awan et al., S-Caffe, PPoPP'17, section 5).
Wins: chain, large messages; binomial, small ones; compositions between.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.plan import Recv, Send, Step, chunks
from scaffe.collectives.planning.trees import Tree


def plan(rank: int, call: Call, tree: Tree) -> list[Step]:
    """Steps of `rank`; every rank ends with the root's buffer."""
    parent, children = tree.parents[rank], tree.children[rank][::-1]
    steps: list[Step] = []
    for start, stop in chunks(0, call.n_elems, call.chunk_elems):
        if parent >= 0:
            steps.append(Recv(parent, start, stop))
        steps += [Send(child, start, stop) for child in children]
    return steps


def cost(tree: Tree) -> Cost:
    """Rounds of one chunk, and n_elems that the busiest ranks send and receive."""
    return Cost(tree.heights[tree.root], max(map(len, tree.children)), 1)
