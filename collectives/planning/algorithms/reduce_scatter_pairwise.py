"""Reduce-scatter in pairs: in round i every rank sends the part of the rank i places ahead straight to it.

Cost, a rank: P - 1 rounds, sends and receives (P-1)/P n_elems; no part waits for another rank's sum.
Wins: few ranks on a network without a shape. Source: Thakur, Rabenseifner, Gropp 2005, its reduce-scatter section.
Sum order: own value first, then the ranks behind it one by one, so it depends on the owner of an element: layer by
layer and whole buffers differ in rounding. The chunk length does not matter.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.plan import RecvReduce, Send, Step, chunks

NAMES = ("P",)
SUM_DEPENDS_ON = ("position",)


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; its own part ends with the reduction, the rest is untouched."""
    order = call.topology.order()
    place, n_ranks = order.index(rank), len(order)
    own = list(chunks(*call.part(rank), call.chunk_elems))
    steps: list[Step] = []
    for distance in range(1, n_ranks):
        ahead, behind = order[(place + distance) % n_ranks], order[place - distance]
        steps += [Send(ahead, *interval) for interval in chunks(*call.part(ahead), call.chunk_elems)]
        steps += [RecvReduce(behind, *interval) for interval in own]
    return steps


def cost(n_ranks: int) -> Cost:
    """Rounds, and n_elems that the busiest ranks send and receive."""
    return Cost(n_ranks - 1, (n_ranks - 1) / n_ranks, (n_ranks - 1) / n_ranks)
