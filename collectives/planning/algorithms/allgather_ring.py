"""All-gather on a ring: P - 1 rounds, each passing one part on to the next rank.

Cost, a rank: sends and receives (P-1)/P n_elems in P - 1 rounds of one part; the wire's limit.
Wins: large messages. Source: Thakur, Rabenseifner, Gropp 2005, its all-gather section.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.exchange import Ring
from scaffe.collectives.planning.plan import Step

NAMES = ("R",)


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; every rank ends with all parts."""
    return Ring(rank, call).allgather(send_own=True)


def cost(n_ranks: int) -> Cost:
    """Rounds, and n_elems that the busiest ranks send and receive."""
    return Cost(n_ranks - 1, (n_ranks - 1) / n_ranks, (n_ranks - 1) / n_ranks)
