"""Reduce by recursive halving, then a binomial gather to the root (Rabenseifner), for any number of ranks.

Cost, a rank: log2 P rounds to reduce-scatter and as many to gather; the root receives 2 (P-1)/P n_elems, another rank
sends at most (P-1)/P + 1/2 n_elems; with no power of two, one more round and n_elems more to receive.
Wins: medium messages, too short to fill a chain's pipeline. Source: Rabenseifner, ICCS 2004; Thakur,
Rabenseifner, Gropp 2005, its reduce section. Sum order: as in `allreduce_halving`.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.exchange import Halving, seats
from scaffe.collectives.planning.plan import Step

NAMES = ("H", "rabenseifner")


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; the root ends with the reduction, the others with partial values."""
    halving = Halving(rank, call)
    return halving.fold() + halving.reduce_scatter() + halving.gather()


def cost(n_ranks: int) -> Cost:
    """Rounds, and n_elems that the busiest ranks send and receive."""
    n_seats, n_rounds, folds = seats(n_ranks)
    kept = (n_seats - 1) / n_seats
    return Cost(2 * n_rounds + folds, kept + 1 / 2, 2 * kept + folds)
