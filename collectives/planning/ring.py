"""The two halves of a ring collective, pipelined: a rank forwards each chunk on arrival, not whole blocks."""

from __future__ import annotations

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
