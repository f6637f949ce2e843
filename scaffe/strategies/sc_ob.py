"""SC-OB: broadcasts overlapped with forward."""

from __future__ import annotations

from scaffe.strategies.base import Replica, Strategy, strategies
from scaffe.strategies.bucketed import Broadcasts, Buckets

ROOT = 0


@strategies.register("sc-ob")
class ScOb(Strategy):
    """All buckets' non-blocking broadcasts are posted first, each is waited for just before the first layer that needs
    it; the gradients are reduced whole after backward (Awan et al., PPoPP'17, 4.2)."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._broadcasts = Broadcasts(replica, Buckets(replica), ROOT)

    def begin(self) -> None:
        """See Strategy."""
        self._broadcasts.begin()

    def before_iteration(self) -> None:
        """Post the broadcasts."""
        self._broadcasts.post_all()

    def before_forward(self, layer_index: int) -> None:
        """Wait for what this layer needs."""
        self._broadcasts.wait_for(layer_index)

    def settle(self) -> None:
        """See Strategy."""
        self._broadcasts.settle()

    def gradients_ready(self) -> None:
        """Sum the gradients on the root."""
        replica = self.replica
        if replica.communicator.n_ranks > 1:
            with replica.timers("communication"):
                replica.communicator.reduce(replica.net.params.diff, ROOT, "sum", replica.algorithm)

    def apply(self, rate: float, iteration: int) -> None:
        """The root updates."""
        update_on_root(self.replica, rate, iteration)
        self._broadcasts.are_stale = True


def update_on_root(replica: Replica, rate: float, iteration: int) -> None:
    """The root applies the update rule; the others' parameters are stale from here."""
    if replica.communicator.rank == ROOT:
        with replica.timers("update"):
            replica.updater.update(rate, iteration, replica.communicator.n_ranks)
