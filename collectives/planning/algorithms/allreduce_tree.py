"""All-reduce over a tree: chunks go up as in `reduce_tree` and, once summed at the root, down as in `bcast_tree`.

Both directions are one pipeline: while chunk i climbs, earlier ones descend on the other direction of the same links.
Every rank orders its steps by the time slot in which they can run: chunk i is summed at height h in slot i + h, and
passed on at depth d in slot i + H + d, H being the tree's height. A message is sent in an earlier slot than it is
received in, so the order can never deadlock.

Cost, a rank, k chunks: sends n_elems to its parent and n_elems to each child, receives as much.
Wins: small messages (binomial: 2 ceil(log2 P) latencies); a chain's 2 n_elems of a busy link lose to the ring's
2 (P-1)/P for large ones, but keep the sum order of `reduce_tree`.
Source: composition after Awan et al., S-Caffe, PPoPP'17, section 5.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.plan import Recv, RecvReduce, Send, Step, chunks
from scaffe.collectives.planning.trees import Tree


def plan(rank: int, call: Call, tree: Tree) -> list[Step]:
    """Steps of `rank`; every rank ends with the same bits."""
    parent, children = tree.parents[rank], tree.children[rank]
    lag = tree.heights[tree.root] + tree.depths[rank] - tree.heights[rank]
    intervals = list(chunks(0, call.n_elems, call.chunk_elems))
    steps: list[Step] = []
    for slot in range(len(intervals) + lag):
        if slot < len(intervals):
            steps += [RecvReduce(child, *intervals[slot]) for child in children]
            if parent >= 0:
                steps.append(Send(parent, *intervals[slot]))
        if slot >= lag:
            if parent >= 0:
                steps.append(Recv(parent, *intervals[slot - lag]))
            steps += [Send(child, *intervals[slot - lag]) for child in reversed(children)]
    return steps


def cost(tree: Tree) -> Cost:
    """Rounds of one chunk, and n_elems that the busiest ranks send and receive."""
    neighbours = max(len(below) + (parent >= 0) for below, parent in zip(tree.children, tree.parents, strict=True))
    return Cost(2 * tree.heights[tree.root], neighbours, neighbours)
