"""Reduce up a tree, chunk by chunk: every rank adds its children's chunk to its own and passes it to its parent.

Chunks follow one another up the tree without a barrier between levels, so a chain of P ranks takes one pass over the
wire and P - 2 chunks (pipelined reduction of Worringen 2003; chunked chain and hierarchical reduce: Awan et al.,
S-Caffe, PPoPP'17, section 5), a binomial tree ceil(log2 P) passes but only as many latencies (Thakur, Rabenseifner,
Gropp 2005, its reduce section).

Cost, a rank, k chunks: sends n_elems in k messages (the root none), receives n_elems for each child; rounds of one
chunk: the tree's height plus what a rank with several children adds.
Wins: chain, large messages; binomial, small ones or very many ranks; compositions between.
Sum order: ((own + child 1) + child 2) + ... with children in the tree's order, whatever the chunk and for any part of
a longer buffer: same algorithm, ranks, nodes and root, same bits.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.plan import RecvReduce, Send, Step, chunks
from scaffe.collectives.planning.trees import Tree


def plan(rank: int, call: Call, tree: Tree) -> list[Step]:
    """Steps of `rank`; the root ends with the reduction, the others with partial values."""
    parent, children = tree.parents[rank], tree.children[rank]
    steps: list[Step] = []
    for start, stop in chunks(0, call.n_elems, call.chunk_elems):
        steps += [RecvReduce(child, start, stop) for child in children]
        if parent >= 0:
            steps.append(Send(parent, start, stop))
    return steps


def cost(tree: Tree) -> Cost:
    """Rounds of one chunk, and n_elems that the busiest ranks send and receive."""
    return Cost(tree.heights[tree.root], 1, max(map(len, tree.children)))
