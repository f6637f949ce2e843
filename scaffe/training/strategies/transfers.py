"""Transfer policies: how parameters reach the ranks, how their gradients are summed, and in which buckets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from scaffe.training.strategies.buckets import Bucket, auto_bucket_bytes, plan_buckets, trainable_intervals
from scaffe.training.strategies.replica import Replica

ROOT = 0


class ParameterTransfer:
    """How updated parameters reach every rank. This base class does nothing, which is right for a single rank.

    Attributes:
        are_stale: whether the parameters have been updated since they were last sent.
        hook_points: indices of the layers before whose forward it must be called.
    """

    are_stale = False
    hook_points: Collection[int] = ()  # layers before whose forward it acts

    def begin(self) -> None:
        """Give every rank the root's parameters, initial or restored."""

    def post(self) -> None:
        """Start to send the parameters if they are stale."""

    def wait_for(self, layer_index: int) -> None:
        """Return when this layer's parameters have arrived."""

    def wait_all(self) -> None:
        """Return when all parameters have arrived, those included that gradients never change."""

    def send(self, bucket: Bucket) -> None:
        """Return when one bucket's parameters have arrived, which have just been updated."""


class GradientTransfer:
    """How the ranks' gradients are summed. This base class does nothing, which is right for a single rank.

    Attributes:
        hook_points: indices of the layers after whose backward it must be called.
        copying_algorithm: the algorithm that gives each sum to the next rank too; empty where it has not to.
    """

    hook_points: Collection[int] = ()  # layers after whose backward it acts
    copying_algorithm = ""

    def completed(self, layer_index: int) -> None:
        """Called when backward has completed this layer's gradients."""

    def finish(self) -> None:
        """Return when every sum is on the rank that needs it."""

    def divisible(self, buckets: Buckets) -> Sequence[Bucket]:
        """What may be summed by itself, with the bits that it has together with the rest."""
        return buckets.layers

    def sum(self, bucket: Bucket) -> None:
        """Return when the sums of one bucket of ``divisible`` are on the rank that needs them."""


class Buckets:
    """A replica's buckets, and the layer at which each begins.

    Args:
        replica: its ``options.bucket`` is a number of bytes, or "auto".
        collectives: names of the collectives that will run on the buckets; "auto" depends on them.

    Attributes:
        all: the buckets in layer order.
        layers: the same parameters with every layer as a bucket by itself.
        together: those of the buckets that are not updated within backward.
        runs: their parameters in as few intervals as possible.
        frozen: the intervals that gradients never change.
        by_first_layer: index of a bucket's first layer → the bucket. Forward needs the bucket from that layer on;
            backward completes it there.
    """

    def __init__(self, replica: Replica, collectives: Sequence[str]) -> None:
        params = replica.net.params
        trainable, self.frozen = trainable_intervals(params)
        n_bytes = params.dtype.itemsize
        wanted = getattr(replica.options, "bucket", "auto")
        like = params.zeros(1, params.dtype) if params.waits_on_host else params.data  # of the memory that sends
        max_bytes = auto_bucket_bytes([replica.communicator.algorithms.bandwidth_bytes(c, like) for c in collectives]
                                      ) if wanted == "auto" else int(wanted)
        self._divide = partial(plan_buckets, n_bytes_per_elem=n_bytes, max_bytes=max_bytes)
        self.all = self._divide(trainable)
        self.layers = plan_buckets(trainable, n_bytes, 0)
        self.leave_out(())

    def leave_out(self, eager: Sequence[Bucket]) -> None:
        """Leave out some of ``all`` or of ``layers``, which are updated within backward; send the rest together."""
        taken = [bucket.place for bucket in eager]
        rest = [(layer.first_layer, layer.place) for layer in self.layers if not _lies_in(layer.place, taken)]
        self.together = self._divide(rest)
        self.runs = [run.place for run in plan_buckets(rest, 0, 0)]  # whose bytes do not count
        self.by_first_layer: dict[int, Bucket] = {b.first_layer: b for b in self.together}


def _lies_in(place: slice, others: Sequence[slice]) -> bool:
    return any(other.start <= place.start < other.stop for other in others)
