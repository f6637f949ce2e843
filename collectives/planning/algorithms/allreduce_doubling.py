"""All-reduce by recursive doubling: in round i every rank exchanges its whole buffer with the one 2^i places away.

Cost, a rank: log2 P rounds, sends and receives n_elems log2 P; with a rank count that is no power of two, 1 or 2
more rounds and n_elems more each way for the ranks that fold.
Wins: small messages, where latency rules. Source: Thakur, Rabenseifner, Gropp 2005, its all-reduce section.
Sum order: as in `allreduce_halving`, bit for bit.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.exchange import Halving, seats
from scaffe.collectives.planning.plan import Step

NAMES = ("D", "bruck")


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; every rank ends with the whole reduction."""
    halving = Halving(rank, call)
    return halving.fold() + halving.exchange() + halving.unfold()


def cost(n_ranks: int) -> Cost:
    """Rounds, and n_elems that the busiest ranks send and receive."""
    n_seats, n_rounds, folds = seats(n_ranks)
    opposite_seats_fold = 2 * (n_ranks - n_seats) > n_seats
    return Cost(n_rounds + folds + opposite_seats_fold, n_rounds + folds, n_rounds + folds)
