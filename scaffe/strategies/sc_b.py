"""SC-B, S-Caffe's basic design: broadcast everything, compute, reduce everything to the root."""

from __future__ import annotations

from scaffe.strategies.base import Replica, Strategy, strategies

ROOT = 0


@strategies.register("sc-b")
class ScB(Strategy):
    """One blocking broadcast before forward and one blocking reduction after backward (Awan et al., PPoPP'17, 4.1).

    The root holds the histories and applies the update; on one rank the same code runs without messages.
    """

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._is_stale = True  # the root's initial or restored parameters go to all first

    def before_iteration(self) -> None:
        """Broadcast the parameters."""
        self.settle()

    def settle(self) -> None:
        """Broadcast the parameters unless every rank has them already."""
        replica = self.replica
        if self._is_stale and replica.communicator.n_ranks > 1:
            with replica.timers("communication"):
                replica.communicator.bcast(replica.net.params.data, ROOT, replica.algorithm)
        self._is_stale = False

    def gradients_ready(self) -> None:
        """Sum the gradients on the root."""
        replica = self.replica
        if replica.communicator.n_ranks > 1:
            with replica.timers("communication"):
                replica.communicator.reduce(replica.net.params.diff, ROOT, "sum", replica.algorithm)

    def apply(self, rate: float, iteration: int) -> None:
        """The root updates; everybody else's parameters are stale from here."""
        replica = self.replica
        if replica.communicator.rank == ROOT:
            with replica.timers("update"):
                replica.updater.update(rate, iteration, replica.communicator.n_ranks)
        self._is_stale = True
