"""All-reduce on a ring: reduce-scatter, then all-gather, each in P - 1 rounds of one block of n_elems / P.

Blocks move in chunks and a chunk travels on as soon as it is summed, so a round does not wait for the last one's end.
Cost, a rank: sends and receives 2 (P-1)/P n_elems, the least that is possible, in 2 (P-1) rounds.
Wins: large messages where the wire is the limit. Source: Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms,
JPDC 2009.
Sum order: block b is summed from place b + 1 round the ring, so an element's bits depend on its place in the buffer:
layer by layer and whole buffers differ in rounding. The chunk length does not matter. All ranks get the same bits.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.exchange import Ring
from scaffe.collectives.planning.plan import Step

NAMES = ("R",)
SUM_DEPENDS_ON = ("position",)


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; every rank ends with the whole reduction."""
    ring = Ring(rank, call)
    return ring.reduce_scatter(forward_last=True) + ring.allgather(send_own=False)


def cost(n_ranks: int) -> Cost:
    """Rounds, and n_elems that the busiest ranks send and receive."""
    return Cost(2 * (n_ranks - 1), 2 * (n_ranks - 1) / n_ranks, 2 * (n_ranks - 1) / n_ranks)
