"""All-reduce by recursive halving and doubling (Rabenseifner's algorithm), for any number of ranks.

Reduce-scatter with neighbours first: in round i a rank exchanges with the one 2^i places away, keeping half of what
it holds; then all-gather in the opposite order. The largest messages thus stay between near ranks. With a rank count
that is no power of two the excess ranks first give their buffer to a neighbour and get the result at the end.

Cost, a rank: 2 log2 P rounds, sends and receives 2 (P-1)/P n_elems; otherwise (P' the power of two below P) 2 more
rounds and n_elems more each way for the ranks that fold.
Wins: medium messages, a power of two of ranks. Source: Rabenseifner, Optimization of collective reduction operations,
ICCS 2004; Thakur, Rabenseifner, Gropp 2005, its all-reduce section.
Sum order: ranks are added in pairs of pairs, the same for every element: any chunk and any part of a buffer gives the
same bits, on all ranks.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.exchange import Halving, seats
from scaffe.collectives.planning.plan import Step

NAMES = ("H", "rabenseifner")


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; every rank ends with the whole reduction."""
    halving = Halving(rank, call)
    return halving.fold() + halving.reduce_scatter() + halving.allgather() + halving.unfold()


def cost(n_ranks: int) -> Cost:
    """Rounds, and n_elems that the busiest ranks send and receive."""
    n_seats, n_rounds, folds = seats(n_ranks)
    n_moved = 2 * (n_seats - 1) / n_seats + folds
    return Cost(2 * (n_rounds + folds), n_moved, n_moved)
