"""StatePlacement: who owns which part of the parameters and histories, and what a snapshot gathers and loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scaffe.training.histories import gather_histories
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.transfers import ROOT

OwnedBy = Callable[[int], Sequence[slice]]
"""From a rank to the intervals of the flat buffers that it owns: it updates them, and holds their histories. No two
ranks own the same element."""


def on_root(replica: Replica) -> OwnedBy:
    """The root owns everything."""
    return lambda rank: [slice(0, replica.net.params.n_elems)] if rank == ROOT else []


class StatePlacement:
    """Parameters lie in the nets, and each rank holds the histories of what it owns.

    Args:
        replica: this rank's.
        owned_by: who owns what; by default the root owns everything.
        copied: intervals that another rank owns, and that this one updates too, so that they outlive the other.
    """

    def __init__(self, replica: Replica, owned_by: OwnedBy | None = None, copied: Sequence[slice] = ()) -> None:
        self.replica, self.owned_by, self._copied = replica, owned_by or on_root(replica), copied

    def owned(self) -> Sequence[slice]:
        """The intervals that this rank owns."""
        return self.owned_by(self.replica.communicator.rank)

    def copied(self) -> Sequence[slice]:
        """The intervals of which this rank keeps a second copy."""
        return self._copied

    def parameters(self) -> np.ndarray:
        """The parameters as a snapshot saves them. Called by all ranks, after ``synchronize_parameters``.

        Returns:
            (n_elems,), the net's own buffer or a copy, whole on rank 0 at least.
        """
        net = self.replica.net
        net.params.bring()
        return net.params.whole(net.context.kernels.to_host)

    def histories(self) -> list[np.ndarray]:
        """The update rule's whole histories, for a snapshot. Called by all ranks.

        Returns:
            on rank 0 one flat array per history, (n_elems,), of the parameters' dtype, in host memory; elsewhere an
            empty list.
        """
        return gather_histories(self.replica.updater, self.replica.communicator)

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        """Take over a part of one of the update rule's histories, before ``begin``; the parts need not be this rank's.

        Args:
            index: which history.
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
