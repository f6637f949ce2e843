"""Transfer policies: how parameters reach the ranks, how their gradients are summed, and in which buckets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from scaffe.flags import MOST_BYTES, Flags
from scaffe.flags.flag import Range
from scaffe.nets.flat_params import FlatParams
from scaffe.training.strategies.roles import Replica

START_UPS_PER_BUCKET = 4
"""Sending a bucket's bytes takes this many times as long as starting its collective up: with 4, start-ups would cost a
fifth of the time if nothing were hidden."""
BUCKET_BYTES = Range(0, MOST_BYTES, words=(("auto", 0),), is_kept=True)


def add_bucket_flag(flags: Flags) -> None:
    """Add ``-bucket``."""
    flags.flag("bucket", "auto", "bytes of a message; 0: by layer", kind=BUCKET_BYTES)


@dataclass(frozen=True)
class Bucket:
    """Consecutive layers whose parameters are adjacent in the flat buffers.

    Attributes:
        first_layer, last_layer: indices of its first and last layer. Forward needs the bucket's parameters before the
            first layer; backward, which runs in reverse, completes its gradients with the first layer.
    """

    first_layer: int
    last_layer: int
    place: slice


def auto_bucket_bytes(bandwidth_bytes: Iterable[int]) -> int:
    """The bytes of a bucket with ``-bucket auto``: as few as possible without losing much time to start-ups.
    ``bandwidth_bytes``: for each collective that will run on buckets, the message length in bytes from which the tuned
    table uses the algorithm for long messages. There start-up and transfer take about the same time."""
    return START_UPS_PER_BUCKET * max(bandwidth_bytes, default=0)


def plan_buckets(places: Sequence[tuple[int, slice]], n_bytes_per_elem: int, max_bytes: int) -> list[Bucket]:
    """Fuse adjacent layers into buckets of at most ``max_bytes``; a larger layer is a bucket by itself.

    Args:
        places: (layer index, its interval in elements) in layer order. Layers that are not sent are left out; the gap
            that such a layer leaves ends a bucket.
        max_bytes: with 0 every layer is a bucket by itself.
    """
    buckets: list[Bucket] = []
    for layer, place in places:
        if place.start == place.stop:
            continue  # all of the layer's parameters are on another rank
        last = buckets[-1] if buckets else None
        fits = last is not None and last.place.stop == place.start and (
            (place.stop - last.place.start) * n_bytes_per_elem <= max_bytes)
        if last is not None and fits:
            buckets[-1] = Bucket(last.first_layer, layer, slice(last.place.start, place.stop))
        else:
            buckets.append(Bucket(layer, layer, place))
    return buckets


def trainable_intervals(params: FlatParams) -> tuple[list[tuple[int, slice]], list[slice]]:
    """Divide the flat buffers into what gradients change and what they do not. Returns (layer index, its interval with
    padding) for the layers in which a parameter has an lr_mult other than 0, in layer order; and the intervals of the
    others (frozen layers, BatchNorm's statistics)."""
    trainable: list[tuple[int, slice]] = []
    frozen: list[slice] = []
    ends = [s.start for s in params.slices[1:]] + [params.n_elems] * bool(params.slices)
    rates: dict[int, bool] = {}
    for param in params.params:
        rates[param.layer_index] = rates.get(param.layer_index, False) or param.lr_mult != 0
    for param, place, end in zip(params.params, params.slices, ends, strict=True):
        whole = slice(place.start, end)
        if not rates[param.layer_index]:
            frozen.append(whole)
        elif trainable and trainable[-1][0] == param.layer_index:
            trainable[-1] = (param.layer_index, slice(trainable[-1][1].start, end))
        else:
            trainable.append((param.layer_index, whole))
    return trainable, frozen


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
        algorithm: that which sums, and may give each sum to the next rank too.
    """

    hook_points: Collection[int] = ()  # layers after whose backward it acts
    algorithm = ""

    def completed(self, layer_index: int) -> None:
        """Called when backward has completed this layer's gradients."""

    def finish(self) -> None:
        """Return when every sum is on the rank that needs it."""

    def divisible(self, buckets: Buckets) -> Sequence[Bucket]:
        return buckets.layers

    def sum(self, bucket: Bucket) -> None:
        """Return when the sums of one bucket of ``divisible`` are on the rank that needs them."""


class Buckets:
    """A replica's buckets, and the layer at which each begins.

    Args:
        replica: its ``options.bucket`` is a number of bytes, or "auto".
        collectives: names of the collectives that will run on the buckets; "auto" depends on them.

    Attributes:
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
        rest = [(layer.first_layer, layer.place) for layer in self.layers
                if not any(place.start <= layer.place.start < place.stop for place in taken)]
        self.together = self._divide(rest)
        self.runs = [run.place for run in plan_buckets(rest, 0, 0)]  # whose bytes do not count
        self.by_first_layer: dict[int, Bucket] = {b.first_layer: b for b in self.together}
