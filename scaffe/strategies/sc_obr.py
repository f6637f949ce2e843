"""SC-OBR: broadcasts overlapped with forward, reductions with backward."""

from __future__ import annotations

from scaffe.strategies.base import Replica, Strategy, strategies
from scaffe.strategies.bucketed import Broadcasts, Buckets, Pending
from scaffe.strategies.sc_ob import ROOT, update_on_root


@strategies.register("sc-obr")
class ScObr(Strategy):
    """As sc-ob, and a helper thread reduces each bucket to the root as soon as backward has completed it (Awan et al.,
    PPoPP'17, 4.3)."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._buckets = Buckets(replica)
        self._broadcasts = Broadcasts(replica, self._buckets, ROOT)
        self._reductions = Pending(replica, "reduce")

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

    def after_backward(self, layer_index: int) -> None:
        """Hand a bucket that is complete to the helper thread."""
        replica = self.replica
        bucket = self._buckets.by_first_layer.get(layer_index)
        if bucket is not None and self.is_last_pass and replica.communicator.n_ranks > 1:
            self._reductions.post(bucket, replica.communicator.ireduce, replica.net.params.diff, ROOT, "sum",
                                  replica.algorithm)

    def gradients_ready(self) -> None:
        """Wait for the last reductions."""
        self._reductions.wait_all()

    def apply(self, rate: float, iteration: int) -> None:
        """The root updates."""
        update_on_root(self.replica, rate, iteration)
        self._broadcasts.are_stale = True
