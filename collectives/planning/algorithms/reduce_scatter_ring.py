"""Reduce-scatter on a ring: P - 1 rounds, each passing one partly summed part to the next rank.

Cost, a rank: sends and receives (P-1)/P n_elems in P - 1 rounds of one part; the wire's limit.
Wins: large messages. Source: Patarasuk & Yuan, JPDC 2009. Sum order: as in `allreduce_ring`.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.exchange import Ring
from scaffe.collectives.planning.plan import Step

NAMES = ("R",)
SUM_DEPENDS_ON = ("position",)


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; its own part ends with the reduction, the rest with partial values."""
    return Ring(rank, call).reduce_scatter(forward_last=False)


def cost(n_ranks: int) -> Cost:
    """Rounds, and n_elems that the busiest ranks send and receive."""
    return Cost(n_ranks - 1, (n_ranks - 1) / n_ranks, (n_ranks - 1) / n_ranks)
