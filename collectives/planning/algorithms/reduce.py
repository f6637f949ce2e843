"""Reductions: the root ends with the reduction, the other ranks with partial values."""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost, planner
from scaffe.collectives.planning.exchange import Halving, seats
from scaffe.collectives.planning.plan import RecvReduce, Send, Step, chunks
from scaffe.collectives.planning.trees import Tree, build_two_trees, interleaved


@planner("reduce", "tree", lambda tree: Cost(tree.heights[tree.root], 1, max(map(len, tree.children))))
def up(rank: int, call: Call, tree: Tree) -> list[Step]:
    """Up a tree, chunk by chunk: every rank adds its children's chunk to its own and passes it to its parent.

    Chunks follow one another up the tree without a barrier between levels, so a chain of P ranks takes one pass over
    the wire and P - 2 chunks (pipelined reduction of Worringen 2003; chunked chain and hierarchical reduce: Awan et
    al., S-Caffe, PPoPP'17, section 5), a binomial tree ceil(log2 P) passes but only as many latencies (Thakur,
    Rabenseifner, Gropp 2005, its reduce section).

    Cost, a rank, k chunks: sends n_elems in k messages (the root none), receives n_elems for each child; rounds of one
    chunk: the tree's height plus what a rank with several children adds.
    Wins: chain, large messages; binomial, small ones or very many ranks; compositions between.
    Sum order: ((own + child 1) + child 2) + ... with children in the tree's order, whatever the chunk and for any part
    of a longer buffer: same algorithm, ranks, nodes and root, same bits.
    """
    parent, children = tree.parents[rank], tree.children[rank]
    steps: list[Step] = []
    for start, stop in chunks(0, call.n_elems, call.chunk_elems):
        steps += [RecvReduce(child, start, stop) for child in children]
        if parent >= 0:
            steps.append(Send(parent, start, stop))
    return steps


@planner("reduce", "twotree", lambda n_ranks: Cost((n_ranks - 1).bit_length(), 1, 1), names=("T",),
         sum_depends_on=("position", "chunks"), cost_chunks=2)
def up_two(rank: int, call: Call) -> list[Step]:
    """Up two binary trees at once, even chunks along one and odd chunks along the other.

    Cost, a rank: sends n_elems (the root none), receives at most n_elems, the first chunk in ceil(log2 P) rounds: a
    chain's traffic with a far shorter pipeline.
    Wins: medium and large messages on many ranks of one to a node.
    Source: Sanders, Speck, Träff 2009 (see `trees.build_two_trees`).
    Sum order: an element's chunk decides its tree, so bits depend on the chunk length and on the place in the buffer:
    layer by layer and whole buffers differ in rounding.
    """
    trees = build_two_trees(call.topology, call.root)

    def steps(which: int, start: int, stop: int) -> list[Step]:
        parent, children = trees[which].parents[rank], trees[which].children[rank]
        sent = [Send(parent, start, stop)] if parent >= 0 else []
        return [*(RecvReduce(child, start, stop) for child in children), *sent]

    return interleaved(call, [tree.heights[rank] for tree in trees], steps)


def _halving_cost(n_ranks: int) -> Cost:
    n_seats, n_rounds, folds = seats(n_ranks)
    kept = (n_seats - 1) / n_seats
    return Cost(2 * n_rounds + folds, kept + 1 / 2, 2 * kept + folds)


@planner("reduce", "halving", _halving_cost, names=("H", "rabenseifner"))
def halving(rank: int, call: Call) -> list[Step]:
    """Recursive halving, then a binomial gather to the root (Rabenseifner), for any number of ranks.

    Cost, a rank: log2 P rounds to reduce-scatter and as many to gather; the root receives 2 (P-1)/P n_elems, another
    rank sends at most (P-1)/P + 1/2 n_elems; with no power of two, one more round and n_elems more to receive.
    Wins: medium messages, too short to fill a chain's pipeline. Source: Rabenseifner, ICCS 2004; Thakur,
    Rabenseifner, Gropp 2005, its reduce section. Sum order: as in `allreduce.halving`.
    """
    place = Halving(rank, call)
    return place.fold() + place.reduce_scatter() + place.gather()
