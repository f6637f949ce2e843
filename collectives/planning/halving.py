"""Recursive halving and doubling for any number of ranks: a power of two of them work, the rest fold into a neighbour.

The P ranks stand at places 0 .. P-1 of the topology's order. Let P' be the largest power of two with P' <= P, and
e = P - P' the excess. Places 0 .. 2e-1 form pairs: the second of a pair gives its values to the first and rests. The
ranks that remain, the first of each pair and the places from 2e on, are numbered 0 .. P'-1 ("seats"); the root has
seat 0.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Recv, RecvReduce, Send, Step, chunks

Interval = tuple[int, int]


def seats(n_ranks: int) -> tuple[int, int, int]:
    """Returns (P', log2 P', 1 if some of the `n_ranks` ranks fold, else 0)."""
    n_rounds = n_ranks.bit_length() - 1
    return 1 << n_rounds, n_rounds, int(n_ranks != 1 << n_rounds)


class Halving:
    """One rank's steps, one method per phase."""

    def __init__(self, rank: int, call: Call) -> None:
        self._order = call.topology.order(call.root)
        self._chunk_elems, self._whole = call.chunk_elems, (0, call.n_elems)
        self._n_seats, _, _ = seats(len(self._order))
        self._excess = len(self._order) - self._n_seats
        place = self._order.index(rank)
        self._rests = place < 2 * self._excess and place % 2 == 1
        self._pair = self._order[place ^ 1] if place < 2 * self._excess else -1
        self._seat = place // 2 if place < 2 * self._excess else place - self._excess

    def fold(self) -> list[Step]:
        """Ranks that rest send their values to their neighbour, which combines them with its own."""
        return self._between_pair(Send if self._rests else RecvReduce)

    def unfold(self) -> list[Step]:
        """Ranks that rest receive the result from their neighbour."""
        return self._between_pair(Recv if self._rests else Send)

    def reduce_scatter(self) -> list[Step]:
        """log2 P' rounds, nearest seat first, each exchanging half; every seat ends with the sum of one interval."""
        steps: list[Step] = []
        for peer, given, kept in self._rounds():
            steps += self._messages(Send, peer, given) + self._messages(RecvReduce, peer, kept)
        return steps

    def allgather(self) -> list[Step]:
        """The rounds of `reduce_scatter` in reverse; every seat ends with the whole buffer."""
        steps: list[Step] = []
        for peer, given, kept in reversed(self._rounds()):
            steps += self._messages(Send, peer, kept) + self._messages(Recv, peer, given)
        return steps

    def gather(self) -> list[Step]:
        """As `allgather`, but a seat is done once it has sent, so that only seat 0 ends with the whole buffer."""
        steps: list[Step] = []
        for bit, (peer, given, kept) in reversed(list(enumerate(self._rounds()))):
            if self._seat >> bit & 1:
                return steps + self._messages(Send, peer, kept)
            steps += self._messages(Recv, peer, given)
        return steps

    def exchange(self) -> list[Step]:
        """log2 P' rounds, each exchanging the whole buffer; every seat ends with the whole sum."""
        steps: list[Step] = []
        for peer, _, _ in self._rounds():
            steps += self._messages(Send, peer, self._whole) + self._messages(RecvReduce, peer, self._whole)
        return steps

    def _rounds(self) -> list[tuple[int, Interval, Interval]]:
        """(peer, interval given to it, interval kept) of each halving round; none for a rank that rests."""
        rounds = []
        start, stop = self._whole
        distance = self._n_seats if self._rests else 1
        while distance < self._n_seats:
            middle = (start + stop) // 2
            lower, upper = (start, middle), (middle, stop)
            given, kept = (lower, upper) if self._seat & distance else (upper, lower)
            rounds.append((self._rank_at(self._seat ^ distance), given, kept))
            (start, stop), distance = kept, distance * 2
        return rounds

    def _rank_at(self, seat: int) -> int:
        return self._order[2 * seat if seat < self._excess else seat + self._excess]

    def _between_pair(self, kind: type) -> list[Step]:
        return self._messages(kind, self._pair, self._whole) if self._pair >= 0 else []

    def _messages(self, kind: type, peer: int, interval: Interval) -> list[Step]:
        return [kind(peer, *piece) for piece in chunks(*interval, self._chunk_elems)]
