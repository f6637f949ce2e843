"""The two parts of a strategy: how parameters reach the ranks, and how the ranks' gradients are summed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from scaffe.flags import Flags
from scaffe.training.strategies.base import Replica
from scaffe.training.strategies.buckets import Bucket, auto_bucket_bytes, plan_buckets, trainable_intervals

ROOT = 0


class Parameters:
    """How updated parameters reach every rank. This base class does nothing, which is right for a single rank.

    Attributes:
        are_stale: whether the parameters have been updated since they were last sent.
        seams: indices of the layers before whose forward it must be called.
    """

    are_stale = False
    seams: Collection[int] = ()  # layers before whose forward it acts

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """Add its own flags to those of ``train``."""

    def begin(self) -> None:
        """Give every rank the root's parameters, initial or restored."""

    def post(self) -> None:
        """Start to send the parameters if they are stale."""

    def wait_for(self, layer_index: int) -> None:
        """Return when this layer's parameters have arrived."""

    def settle(self) -> None:
        """Return when all parameters have arrived, those included that gradients never change."""


class Gradients:
    """How the ranks' gradients are summed. This base class does nothing, which is right for a single rank.

    Attributes:
        seams: indices of the layers after whose backward it must be called.
    """

    seams: Collection[int] = ()  # layers after whose backward it acts

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """Add its own flags to those of ``train``."""

    def completed(self, layer_index: int) -> None:
        """Called when backward has completed this layer's gradients."""

    def finish(self) -> None:
        """Return when every sum is on the rank that needs it."""


class Buckets:
    """A replica's buckets, and the layer at which each begins.

    Args:
        replica: its ``options.bucket`` is a number of bytes, or "auto".
        collectives: names of the collectives that will run on the buckets; "auto" depends on them.

    Attributes:
        all: the buckets in layer order.
        runs: the same parameters in as few intervals as possible.
        frozen: the intervals that gradients never change.
        by_first_layer: index of a bucket's first layer → the bucket. Forward needs the bucket from that layer on;
            backward completes it there.
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
