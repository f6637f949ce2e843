"""All-reduces: every rank ends with the whole reduction, and with the same bits."""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost, planner
from scaffe.collectives.planning.exchange import Halving, Ring, seats
from scaffe.collectives.planning.plan import Recv, RecvReduce, Send, Step, chunks
from scaffe.collectives.planning.trees import Tree


def _doubling_cost(n_ranks: int) -> Cost:
    n_seats, n_rounds, folds = seats(n_ranks)
    opposite_seats_fold = 2 * (n_ranks - n_seats) > n_seats
    return Cost(n_rounds + folds + opposite_seats_fold, n_rounds + folds, n_rounds + folds)


@planner("allreduce", "doubling", _doubling_cost, names=("D", "bruck"))
def doubling(rank: int, call: Call) -> list[Step]:
    """Recursive doubling: in round i every rank exchanges its whole buffer with the one 2^i places away.

    Cost, a rank: log2 P rounds, sends and receives n_elems log2 P; with a rank count that is no power of two, 1 or 2
    more rounds and n_elems more each way for the ranks that fold.
    Wins: small messages, where latency rules. Source: Thakur, Rabenseifner, Gropp 2005, its all-reduce section.
    Sum order: as in `halving`, bit for bit.
    """
    place = Halving(rank, call)
    return place.fold() + place.exchange() + place.unfold()


def _halving_cost(n_ranks: int) -> Cost:
    n_seats, n_rounds, folds = seats(n_ranks)
    n_moved = 2 * (n_seats - 1) / n_seats + folds
    return Cost(2 * (n_rounds + folds), n_moved, n_moved)


@planner("allreduce", "halving", _halving_cost, names=("H", "rabenseifner"))
def halving(rank: int, call: Call) -> list[Step]:
    """Recursive halving and doubling (Rabenseifner's algorithm), for any number of ranks.

    Reduce-scatter with neighbours first: in round i a rank exchanges with the one 2^i places away, keeping half of what
    it holds; then all-gather in the opposite order. The largest messages thus stay between near ranks. With a rank
    count that is no power of two the excess ranks first give their buffer to a neighbour and get the result at the end.

    Cost, a rank: 2 log2 P rounds, sends and receives 2 (P-1)/P n_elems; otherwise (P' the power of two below P) 2 more
    rounds and n_elems more each way for the ranks that fold.
    Wins: medium messages, a power of two of ranks. Source: Rabenseifner, Optimization of collective reduction
    operations, ICCS 2004; Thakur, Rabenseifner, Gropp 2005, its all-reduce section.
    Sum order: ranks are added in pairs of pairs, the same for every element: any chunk and any part of a buffer gives
    the same bits, on all ranks.
    """
    place = Halving(rank, call)
    return place.fold() + place.reduce_scatter() + place.allgather() + place.unfold()


@planner("allreduce", "ring", lambda n: Cost(2 * (n - 1), 2 * (n - 1) / n, 2 * (n - 1) / n), names=("R",),
         sum_depends_on=("position",))
def ring(rank: int, call: Call) -> list[Step]:
    """Reduce-scatter on a ring, then all-gather, each in P - 1 rounds of one block of n_elems / P.

    Blocks move in chunks and a chunk travels on as soon as it is summed, so a round does not wait for the last one's
    end.
    Cost, a rank: sends and receives 2 (P-1)/P n_elems, the least that is possible, in 2 (P-1) rounds.
    Wins: large messages where the wire is the limit. Source: Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms,
    JPDC 2009.
    Sum order: block b is summed from place b + 1 round the ring, so an element's bits depend on its place in the
    buffer: layer by layer and whole buffers differ in rounding. The chunk length does not matter.
    """
    place = Ring(rank, call)
    return place.reduce_scatter(forward_last=True) + place.allgather(send_own=False)


def _tree_cost(tree: Tree) -> Cost:
    neighbours = max(len(below) + (parent >= 0) for below, parent in zip(tree.children, tree.parents, strict=True))
    return Cost(2 * tree.heights[tree.root], neighbours, neighbours)


@planner("allreduce", "tree", _tree_cost)
def up_and_down(rank: int, call: Call, tree: Tree) -> list[Step]:
    """Chunks go up a tree as in `reduce.up` and, once summed at the root, down as in `bcast.down`.

    Both directions are one pipeline: while chunk i climbs, earlier ones descend on the other direction of the same
    links. Every rank orders its steps by the time slot in which they can run: chunk i is summed at height h in slot
    i + h, and passed on at depth d in slot i + H + d, H being the tree's height. A message is sent in an earlier slot
    than it is received in, so the order can never deadlock.

    Cost, a rank, k chunks: sends n_elems to its parent and n_elems to each child, receives as much.
    Wins: small messages (binomial: 2 ceil(log2 P) latencies); a chain's 2 n_elems of a busy link lose to the ring's
    2 (P-1)/P for large ones, but keep the sum order of `reduce.up`.
    Source: composition after Awan et al., S-Caffe, PPoPP'17, section 5.
    """
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
