"""Broadcasts: every rank ends with the root's buffer."""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost, planner
from scaffe.collectives.planning.plan import Recv, Send, Step, chunks
from scaffe.collectives.planning.trees import Tree, build_two_trees, interleaved


@planner("bcast", "tree", lambda tree: Cost(tree.heights[tree.root], max(map(len, tree.children)), 1))
def down(rank: int, call: Call, tree: Tree) -> list[Step]:
    """Down a tree, chunk by chunk: the reduction's tree run backwards.

    Cost, a rank, k chunks: receives n_elems in k messages (the root none), sends n_elems to each child, the largest
    subtree first. A chain takes one pass over the wire and P - 2 chunks, a binomial tree ceil(log2 P) passes (Thakur,
    Rabenseifner, Gropp 2005, its broadcast section; pipelined chains: Awan et al., S-Caffe, PPoPP'17, section 5).
    Wins: chain, large messages; binomial, small ones; compositions between.
    """
    parent, children = tree.parents[rank], tree.children[rank][::-1]
    steps: list[Step] = []
    for start, stop in chunks(0, call.n_elems, call.chunk_elems):
        if parent >= 0:
            steps.append(Recv(parent, start, stop))
        steps += [Send(child, start, stop) for child in children]
    return steps


@planner("bcast", "twotree", lambda n_ranks: Cost((n_ranks - 1).bit_length(), 1, 1), names=("T",), cost_chunks=2)
def down_two(rank: int, call: Call) -> list[Step]:
    """Down two binary trees at once, even chunks along one and odd chunks along the other.

    Every rank is inside at most one of the trees, so with two chunks or more it sends at most n_elems, as in a chain,
    but the pipeline is only ceil(log2 P) ranks deep.
    Cost, a rank: receives n_elems, sends at most n_elems, the first chunk in ceil(log2 P) rounds.
    Wins: medium and large messages on many ranks of one to a node.
    Source: Sanders, Speck, Träff 2009 (see `trees.build_two_trees`).
    """
    trees = build_two_trees(call.topology, call.root)

    def steps(which: int, start: int, stop: int) -> list[Step]:
        parent, children = trees[which].parents[rank], trees[which].children[rank]
        received = [Recv(parent, start, stop)] if parent >= 0 else []
        return [*received, *(Send(child, start, stop) for child in children)]

    return interleaved(call, [tree.depths[rank] for tree in trees], steps)
