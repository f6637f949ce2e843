"""Who owns which part of parameters and histories, and what a snapshot gathers and loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from scaffe.layers.kernels.backend import is_device
from scaffe.training.fault_tolerance.recoverable import neighbours
from scaffe.training.fault_tolerance.replacement import keeps_copies
from scaffe.training.strategies.roles import Replica
from scaffe.training.strategies.transfers import ROOT
from scaffe.training.updater import gather_parts, updater_parts

OwnedBy = Callable[[int], Sequence[slice]]
"""From a rank to the intervals of the flat buffers that it owns: it updates them, and holds their histories. No two
ranks own the same element."""


def on_root(replica: Replica) -> OwnedBy:
    """The root owns everything."""
    return lambda rank: [slice(0, replica.net.params.n_elems)] if rank == ROOT else []


class StatePlacement:
    """Parameters lie in the nets, and each rank holds the histories of what it owns.

    Args:
        owned_by: who owns what; by default the root owns everything.
        copied: intervals that another rank owns, and that this one updates too, so that they outlive the other.
    """

    def __init__(self, replica: Replica, owned_by: OwnedBy | None = None, copied: Sequence[slice] = ()) -> None:
        self.replica, self.owned_by, self._copied = replica, owned_by or on_root(replica), copied

    def owned(self) -> Sequence[slice]:
        return self.owned_by(self.replica.communicator.rank)

    def copied(self) -> Sequence[slice]:
        """The intervals of which this rank keeps a second copy."""
        return self._copied

    def parameters(self) -> np.ndarray:
        """The parameters as a snapshot saves them. Called by all ranks, after ``synchronize_parameters``.
        Returns (n_elems,), the net's own buffer or a copy, whole on rank 0 at least."""
        net = self.replica.net
        net.params.fetch_all()
        return net.params.whole(net.context.kernels.to_host)

    def histories(self) -> list[np.ndarray]:
        """The update rule's whole histories, for a snapshot. Called by all ranks.
        Returns, on rank 0, one flat array per history, (n_elems,), of the parameters' dtype, in host memory; elsewhere
        an empty list."""
        updater, params = self.replica.updater, self.replica.updater.params
        own = [updater_parts(updater, index) for index in range(updater.rule.n_histories)]
        return gather_parts(own, params.n_elems, params.dtype, self.replica.communicator, zeros=updater.whole)

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        """Take over a part of one of the update rule's histories, before ``begin``; the parts need not be this rank's.

        Args:
            start: the element of the flat buffers that ``values[0]`` belongs to.
            values: (n,), in host memory.
        """
        self.replica.updater.load_history(index, start, values)

    @property
    def kept_bytes(self) -> int:
        """Bytes of this rank's memory that the strategy takes, beside the net and the histories that the rank owns."""
        return 0

    @property
    def server_bytes(self) -> int:
        """Bytes in the memory of each rank that is no worker; 0 without such ranks."""
        return 0

    def keep_on_disk(self, folder: str) -> None:
        """From ``begin`` on, keep what ``kept_bytes`` counts in files in a folder, as far as possible. Called by all
        ranks, before ``begin``, where memory is limited."""


DOUBLED = "M2"
MOST_ELEMS = 1 << 27
"""The longest message: MPI counts bytes with 32 bits."""


class ReplicatedState:
    """Second copies of parameters and histories (``-history_copies``): a rank's neighbour makes the same updates.

    The gradients' length carries what several histories would take; the copy has the owner's bits, since both compute
    the same from the same. Ranks of one node that share memory sum into both places at once (algorithm M2); others send
    messages.

    Args:
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
        net, messages = self._replica.net, self._replica.communicator.messages
        diff, kernels = net.params.diff, net.context.kernels
        with self._replica.timers("communication"):
            coming = [(rank, tag, piece, kernels.to_host(diff[piece]))
                      for rank, pieces in self._comes for tag, piece in enumerate(pieces)]
            under_way = [messages.irecv(values, rank, tag) for rank, tag, _, values in coming]
            under_way += [messages.isend(kernels.to_host(diff[piece]), rank, tag)
                          for rank, pieces in self._goes for tag, piece in enumerate(pieces)]
            for message in under_way:
                message.wait()
            for _, _, piece, values in coming if is_device(kernels) else ():
                diff[piece] = kernels.to_device(values)  # messages are host memory's


def _shares_memory(replica: Replica) -> bool:
    """Whether sums can go to two ranks at once: where the algorithm is open, or is that of shared memory."""
    is_free = replica.sum_algorithm in ("auto", "M") and not is_device(replica.net.context.kernels)
    return is_free and replica.communicator.algorithms.can("reduce", DOUBLED)


def _pieces(intervals: Sequence[slice]) -> Iterator[slice]:
    for interval in intervals:
        for start in range(interval.start, interval.stop, MOST_ELEMS):
            yield slice(start, min(start + MOST_ELEMS, interval.stop))
