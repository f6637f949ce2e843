"""What a strategy is made of: how parameters reach the ranks, and how the ranks' gradients are summed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from scaffe.flags import Flags
from scaffe.training.strategies.base import Replica
from scaffe.training.strategies.buckets import Bucket, auto_bucket_bytes, plan_buckets, trainable_intervals

ROOT = 0


class Parameters:
    """How parameters that have been updated reach every rank. One rank has them: this class does nothing.

    Attributes:
        are_stale: whether they have changed since they were last sent.
    """

    are_stale = False
    seams: Collection[int] = ()  # layers before whose forward it acts

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """Add its own flags to those of ``train``."""

    def begin(self) -> None:
        """Every rank begins with the root's, initial or restored."""

    def post(self) -> None:
        """Start to send them if they have changed."""

    def wait_for(self, layer_index: int) -> None:
        """Return when this layer's are here."""

    def settle(self) -> None:
        """Return when all are here, those too that gradients never change."""


class Gradients:
    """How the ranks' gradients are summed. On one rank they are: this class does nothing."""

    seams: Collection[int] = ()  # layers after whose backward it acts

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """Add its own flags to those of ``train``."""

    def completed(self, layer_index: int) -> None:
        """Backward has computed the last of this layer's."""

    def finish(self) -> None:
        """Return when every sum is where it belongs."""


class Buckets:
    """A replica's buckets, and which layer begins or completes which.

    Args:
        replica: its ``options.bucket`` is a number of bytes, or "auto".
        collectives: what will run on them, for "auto".

    Attributes:
        all: in layer order.
        runs: the same parameters in the fewest intervals.
        frozen: intervals that gradients never change.
        by_first_layer: by the layer whose forward needs it first and whose backward completes it.
    """

    def __init__(self, replica: Replica, collectives: Sequence[str]) -> None:
        params = replica.net.params
        trainable, self.frozen = trainable_intervals(params)
        n_bytes = params.dtype.itemsize
        wanted = getattr(replica.options, "bucket", "auto")
        max_bytes = auto_bucket_bytes([replica.communicator.bandwidth_bytes(c, params.data) for c in collectives]
                                      ) if wanted == "auto" else int(wanted)
        self.all = plan_buckets(trainable, n_bytes, max_bytes)
        self.runs = [run.place for run in plan_buckets(trainable, n_bytes, params.n_elems * n_bytes)]
        self.by_first_layer: dict[int, Bucket] = {b.first_layer: b for b in self.all}
