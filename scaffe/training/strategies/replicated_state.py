"""Second copies of parameters and histories, on the owner's neighbour (``-history-copies``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from scaffe.layers.kernels.backend import is_device
from scaffe.training.fault_tolerance.state_sources import keeps_copies, neighbours
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.transfers import ROOT

DOUBLED = "M2"
MOST_ELEMS = 1 << 27
"""The longest message: MPI counts bytes with 32 bits."""


class ReplicatedState:
    """The summed gradients of what a rank owns go to its neighbour too, which makes the same update.

    The gradients' length carries what several histories would take; the copy has the owner's bits, since both compute
    the same from the same. Ranks of one node that share memory sum into both places at once (algorithm M2); others send
    messages.

    Args:
        replica: this rank's; its options say whether copies are kept.
        owned_by: the intervals that a rank owns.
        frozen: those that gradients never change, which are never summed; the root owns them.

    Attributes:
        kept: the intervals of which this rank keeps a copy.
        algorithm: that which sums for two ranks; empty where messages bring the sums, or no copies are kept.
    """

    def __init__(self, replica: Replica, owned_by: Callable[[int], Sequence[slice]], frozen: Sequence[slice]) -> None:
        self._replica, ranks = replica, replica.communicator
        self._is_on = keeps_copies(replica.options) and ranks.n_ranks > 1
        copied_to = neighbours(ranks.topology.nodes) if self._is_on else []
        before = [rank for rank, keeper in enumerate(copied_to) if keeper == ranks.rank]
        self.kept = [piece for rank in before for piece in owned_by(rank)]
        self.algorithm = DOUBLED * (self._is_on and _shares_memory(replica))
        by_messages = (lambda rank: frozen if rank == ROOT else ()) if self.algorithm else owned_by
        self._comes = [(rank, list(_pieces(by_messages(rank)))) for rank in before]
        self._goes = [(copied_to[ranks.rank], list(_pieces(by_messages(ranks.rank))))] if self._is_on else []

    def exchange(self) -> None:
        """Send the sums of what this rank owns, and get those of which it keeps a copy. Called by all ranks."""
        if not any(pieces for _, pieces in (*self._comes, *self._goes)):
            return
        diff, messages = self._replica.net.params.diff, self._replica.communicator.messages
        with self._replica.timers("communication"):
            under_way = [messages.irecv(diff[piece], rank, tag)
                         for rank, pieces in self._comes for tag, piece in enumerate(pieces)]
            under_way += [messages.isend(diff[piece], rank, tag)
                          for rank, pieces in self._goes for tag, piece in enumerate(pieces)]
            for message in under_way:
                message.wait()


def _shares_memory(replica: Replica) -> bool:
    """Whether sums can go to two ranks at once: where the algorithm is open, or is that of shared memory."""
    is_free = replica.sum_algorithm in ("auto", "M") and not is_device(replica.net.context.kernels)
    return is_free and replica.communicator.algorithms.can("reduce", DOUBLED)


def _pieces(intervals: Sequence[slice]) -> Iterator[slice]:
    for interval in intervals:
        for start in range(interval.start, interval.stop, MOST_ELEMS):
            yield slice(start, min(start + MOST_ELEMS, interval.stop))
