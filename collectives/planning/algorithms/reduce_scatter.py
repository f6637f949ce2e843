"""Reduce-scatters: each rank's own part ends with the reduction."""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost, planner
from scaffe.collectives.planning.exchange import Halving, Ring, seats
from scaffe.collectives.planning.plan import Recv, RecvReduce, Send, Step, chunks


def _halving_cost(n_ranks: int) -> Cost:
    """Of parts that are equal."""
    n_seats, n_rounds, folds = seats(n_ranks)
    excess = n_ranks - n_seats
    n_kept = sum(min(2 * seat, seat + excess) for seat in (1 << bit for bit in range(n_rounds)))
    opposite_seats_fold = 2 * excess > n_seats
    n_sent = 1 if folds else (n_ranks - 1) / n_ranks
    return Cost(n_rounds + folds + opposite_seats_fold, n_sent, n_kept / n_ranks + folds)


@planner("reduce_scatter", "halving", _halving_cost, names=("H", "rabenseifner"))
def halving(rank: int, call: Call) -> list[Step]:
    """Recursive halving, for any number of ranks. The rest of the buffer ends with partial values.

    In round i a rank exchanges with the one half a group away, keeping the parts of its own half; the group of all
    ranks is halved until everyone is alone. With a rank count that is no power of two, the first of the excess pairs
    works for both and gives the second its part at the end.

    Cost, a rank: log2 P rounds, sends and receives (P-1)/P n_elems; otherwise up to 2 more rounds, and n_elems more for
    the ranks that fold. Wins: small and medium messages. Source: Thakur, Rabenseifner, Gropp 2005, its reduce-scatter
    section; Rabenseifner, ICCS 2004.
    Sum order: the ranks' pairs are the same for every element: any chunk gives the same bits; it depends on the rank
    count alone. (Not on the owner; but it pairs the farthest ranks first, unlike `allreduce.halving`.)
    """
    return _Parts(rank, call).steps()


class _Parts(Halving):
    """Over the ranks in their own order, cut where ranks' parts begin. Of a pair the first works for both."""

    def __init__(self, rank: int, call: Call) -> None:
        super().__init__(rank, call, range(call.n_ranks))
        self._offsets, self._second = call.bounds(), rank | 1

    def steps(self) -> list[Step]:
        if self._pair < 0:
            return self._halve()
        part = self._offsets[self._second], self._offsets[self._second + 1]
        if self._rests:
            return self.fold() + self._messages(Recv, self._pair, part)
        return self.fold() + self._halve() + self._messages(Send, self._pair, part)

    def _halve(self) -> list[Step]:
        steps: list[Step] = []
        low, distance = 0, self._n_seats // 2
        while distance:
            lower, upper = ((self._border(first), self._border(first + distance)) for first in (low, low + distance))
            in_upper = bool(self._seat & distance)
            given, kept = (lower, upper) if in_upper else (upper, lower)
            peer = self._rank_at(self._seat ^ distance)
            steps += self._messages(Send, peer, given) + self._messages(RecvReduce, peer, kept)
            low, distance = low + distance * in_upper, distance // 2
        return steps

    def _border(self, seat: int) -> int:
        return self._offsets[seat + min(seat, self._excess)]


def _rounds_cost(n_ranks: int) -> Cost:
    return Cost(n_ranks - 1, (n_ranks - 1) / n_ranks, (n_ranks - 1) / n_ranks)


@planner("reduce_scatter", "pairwise", _rounds_cost, names=("P",), sum_depends_on=("position",))
def pairwise(rank: int, call: Call) -> list[Step]:
    """In round i every rank sends the part of the rank i places ahead straight to it. The rest of the buffer stays.

    Cost, a rank: P - 1 rounds, sends and receives (P-1)/P n_elems; no part waits for another rank's sum.
    Wins: few ranks on a network without a shape. Source: Thakur, Rabenseifner, Gropp 2005, its reduce-scatter section.
    Sum order: own value first, then the ranks behind it one by one, so it depends on the owner of an element: layer by
    layer and whole buffers differ in rounding. The chunk length does not matter.
    """
    order = call.topology.order()
    place, n_ranks = order.index(rank), len(order)
    own = list(chunks(*call.part(rank), call.chunk_elems))
    steps: list[Step] = []
    for distance in range(1, n_ranks):
        ahead, behind = order[(place + distance) % n_ranks], order[place - distance]
        steps += [Send(ahead, *interval) for interval in chunks(*call.part(ahead), call.chunk_elems)]
        steps += [RecvReduce(behind, *interval) for interval in own]
    return steps


@planner("reduce_scatter", "ring", _rounds_cost, names=("R",), sum_depends_on=("position",))
def ring(rank: int, call: Call) -> list[Step]:
    """P - 1 rounds on a ring, each passing one partly summed part on. The rest of the buffer ends with partial values.

    Cost, a rank: sends and receives (P-1)/P n_elems in P - 1 rounds of one part; the wire's limit.
    Wins: large messages. Source: Patarasuk & Yuan, JPDC 2009. Sum order: as in `allreduce.ring`.
    """
    return Ring(rank, call).reduce_scatter(forward_last=False)
