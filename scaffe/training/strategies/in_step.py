"""InStep: which ranks do the same iteration at the same time, and how all of them agree on what comes after it."""

from __future__ import annotations

import numpy as np

from scaffe.collectives.communicator import Communicator


class InStep:
    """The ranks agree in every iteration, by a collective call.

    Args:
        peers: the ranks that do the same iteration at the same time. Those of an asynchronous strategy are in step only
            after ``synchronize_parameters``: there a rank's only peer is itself.
    """

    def __init__(self, peers: Communicator) -> None:
        self.peers = peers

    def agree(self, level: int, iteration: int) -> int:
        """Agree on what all ranks do after the same iteration (stop, snapshot). Called in every iteration.

        Args:
            level: what this rank wants; the highest of all ranks' counts. 0 for nothing.
            iteration: iterations done before this one.

        Returns:
            what all ranks do after this iteration.
        """
        agreed = np.array([level], np.int32)
        if self.peers.n_ranks > 1:
            self.peers.allreduce(agreed, "max", "mpi")
        return int(agreed[0])
