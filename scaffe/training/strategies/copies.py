"""Second copies of parameters and histories, on the owner's neighbour (``-history-copies``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from scaffe.training.strategies.replica import Replica
from scaffe.training.survival.holders import keeps_copies, neighbour

MOST_ELEMS = 1 << 27
"""The longest message: MPI counts bytes with 32 bits."""


class Copies:
    """Each rank sends the summed gradients of what it owns to the next one, which makes the same update.

    One message of the gradients' length carries what several histories would take; the copy has the owner's bits, since
    both compute the same from the same.

    Args:
        replica: this rank's; its options say whether copies are kept.
        owned_by: the intervals that a rank owns.

    Attributes:
        kept: the intervals of which this rank keeps a copy.
    """

    def __init__(self, replica: Replica, owned_by: Callable[[int], Sequence[slice]]) -> None:
        self._replica, ranks = replica, replica.communicator
        self._before, self._after = (ranks.rank - 1) % ranks.n_ranks, neighbour(ranks.rank, ranks.n_ranks)
        is_on = keeps_copies(replica.options) and ranks.n_ranks > 1
        self.kept = list(owned_by(self._before)) if is_on else []
        self._sent = list(owned_by(ranks.rank)) if is_on else []

    def exchange(self) -> None:
        """Send the sums of what this rank owns, and get those of which it keeps a copy. Called by all ranks."""
        if not self.kept and not self._sent:
            return
        diff, messages = self._replica.net.params.diff, self._replica.communicator.messages
        with self._replica.timers("communication"):
            comes = [messages.irecv(diff[piece], self._before, tag) for tag, piece in enumerate(_pieces(self.kept))]
            goes = [messages.isend(diff[piece], self._after, tag) for tag, piece in enumerate(_pieces(self._sent))]
            for message in (*comes, *goes):
                message.wait()


def _pieces(intervals: Sequence[slice]) -> Iterator[slice]:
    for interval in intervals:
        for start in range(interval.start, interval.stop, MOST_ELEMS):
            yield slice(start, min(start + MOST_ELEMS, interval.stop))
