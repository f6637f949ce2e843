"""What the ranks of a replica exchange: collectives on arrays of equal blocks, one a rank."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.planning.partition import bounds

TAG = 0


class Group:
    """The ranks that share a replica.

    Args:
        communicator: theirs.
    """

    def __init__(self, communicator: Communicator) -> None:
        self.communicator, self.rank, self.n_ranks = communicator, communicator.rank, communicator.n_ranks

    def columns(self, n_columns: int, rank: int | None = None) -> slice:
        """The columns that a rank has (None: this one) of so many."""
        return slice(*bounds(self.rank if rank is None else rank, self.n_ranks, n_columns))

    def block(self, array: np.ndarray, rank: int | None = None) -> np.ndarray:
        """A rank's block of an array whose first axis the ranks share evenly, as a view."""
        n = len(array) // self.n_ranks
        at = (self.rank if rank is None else rank) * n
        return array[at:at + n]

    def gather(self, array: np.ndarray) -> None:
        """Give every rank's block to all ranks, in place."""
        self.communicator.allgather(array.reshape(-1))

    def scatter_sum(self, array: np.ndarray) -> None:
        """Sum arrays over the ranks; afterwards each rank has its own block of the sum, the rest is undefined."""
        self.communicator.reduce_scatter(array.reshape(-1))

    def sum(self, array: np.ndarray) -> None:
        """Sum arrays over the ranks, in place."""
        self.communicator.allreduce(array.reshape(-1))

    def max(self, array: np.ndarray) -> None:
        """The largest of each element over the ranks, in place."""
        self.communicator.allreduce(array.reshape(-1), "max")

    def swap(self, sent: np.ndarray, received: np.ndarray) -> None:
        """Send block r to rank r, and take the block that it sends to this rank.

        Args:
            sent, received: contiguous, first axis ``n_ranks``; all blocks alike on all ranks.
        """
        received[self.rank] = sent[self.rank]
        others = [(self.rank + step) % self.n_ranks for step in range(1, self.n_ranks)]
        self.exchange({peer: sent[peer] for peer in reversed(others)}, {peer: received[peer] for peer in others})

    def exchange(self, sent: Mapping[int, np.ndarray], received: Mapping[int, np.ndarray]) -> None:
        """Send an array to each of some ranks, and receive one from each of some; as long as the other side's.

        Args:
            sent, received: rank → contiguous array.
        """
        messages = self.communicator.messages
        pending = [messages.irecv(array.reshape(-1), peer, TAG) for peer, array in received.items()]
        pending += [messages.isend(array.reshape(-1), peer, TAG) for peer, array in sent.items()]
        for message in pending:
            message.wait()
