"""Parameters and gradients sent whole, by blocking calls."""

from __future__ import annotations

from scaffe.training.strategies.base import Replica
from scaffe.training.strategies.parts import ROOT, Buckets, Gradients, Parameters


class Broadcast(Parameters):
    """The root's parameters, on their way to every rank while nobody computes (S-Caffe, 4.1).

    Args:
        replica: whose parameters.
        buckets: what of them changes; frozen layers are sent when others look at them.
    """

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        self.replica, self.buckets = replica, buckets

    def begin(self) -> None:
        """See Parameters; the frozen ones too."""
        self._send([slice(None)])

    def post(self) -> None:
        """See Parameters; they have arrived when this returns."""
        if self.are_stale:
            self._send(self.buckets.runs)
        self.are_stale = False

    def settle(self) -> None:
        """See Parameters."""
        self.post()
        self._send(self.buckets.frozen)

    def _send(self, places: list[slice]) -> None:
        replica = self.replica
        if not places:
            return
        with replica.timers("communication"):
            for place in places:
                replica.communicator.bcast(replica.net.params.data[place], ROOT, replica.algorithm_for("bcast"))


class Reduction(Gradients):
    """The gradients' sums on the root, in one go after backward.

    Args:
        replica: whose gradients.
        buckets: which of them anyone needs.
    """

    def __init__(self, replica: Replica, buckets: Buckets) -> None:
        self.replica, self.buckets = replica, buckets

    def finish(self) -> None:
        """See Gradients."""
        replica = self.replica
        with replica.timers("communication"):
            for place in self.buckets.runs:
                replica.communicator.reduce(replica.net.params.diff[place], ROOT, "sum", replica.sum_algorithm)
