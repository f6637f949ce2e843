"""Patterns in which all ranks send at once: the pipelined ring, recursive halving and doubling."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Recv, RecvReduce, Send, Step, chunks


class Ring:
    """One rank's place in the ring; block b of the buffer is the part of the rank at place b."""

    def __init__(self, rank: int, call: Call) -> None:
        """The ring runs through `call.topology.order()`, so that it enters and leaves each node once."""
        order = call.topology.order()
        self._n_ranks, self._place = len(order), order.index(rank)
        self._left = order[self._place - 1]
        self._right = order[(self._place + 1) % self._n_ranks]
        offsets = call.bounds()
        self._blocks = [list(chunks(offsets[owner], offsets[owner + 1], call.chunk_elems)) for owner in order]

    def reduce_scatter(self, forward_last: bool) -> list[Step]:
        """P - 1 rounds after which every rank has the sum of its own block; it sends that on if `forward_last`."""
        steps: list[Step] = self._send(self._place - 1)
        for behind in range(2, self._n_ranks + 1):
            for interval in self._block(self._place - behind):
                steps.append(RecvReduce(self._left, *interval))
                if behind < self._n_ranks or forward_last:
                    steps.append(Send(self._right, *interval))
        return steps

    def allgather(self, send_own: bool) -> list[Step]:
        """P - 1 rounds after which every rank has every block; it sends its own block first if `send_own`."""
        steps: list[Step] = self._send(self._place) if send_own else []
        for behind in range(1, self._n_ranks):
            for interval in self._block(self._place - behind):
                steps.append(Recv(self._left, *interval))
                if behind < self._n_ranks - 1:
                    steps.append(Send(self._right, *interval))
        return steps

    def _block(self, place: int) -> list[tuple[int, int]]:
        return self._blocks[place % self._n_ranks]

    def _send(self, place: int) -> list[Step]:
        return [Send(self._right, *interval) for interval in self._block(place)]


Interval = tuple[int, int]


def seats(n_ranks: int) -> tuple[int, int, int]:
    """Returns (P', log2 P', 1 if some of the `n_ranks` ranks fold, else 0)."""
    n_rounds = n_ranks.bit_length() - 1
    return 1 << n_rounds, n_rounds, int(n_ranks != 1 << n_rounds)


class Halving:
    """One rank's steps, one method per phase."""

    def __init__(self, rank: int, call: Call, order: Sequence[int] = ()) -> None:
        """``order``: of the ranks; empty for that of `call.topology`, from the root on."""
        self._order = order or call.topology.order(call.root)
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
        return [kind(peer, *chunk) for chunk in chunks(*interval, self._chunk_elems)]
