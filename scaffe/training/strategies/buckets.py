"""Buckets: consecutive layers whose part of the flat buffers is sent as one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scaffe.flags import MOST_BYTES, Flags
from scaffe.flags.flag import Range
from scaffe.nets.flat_params import FlatParams

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
        place: its interval of the flat buffers, in elements.
    """

    first_layer: int
    last_layer: int
    place: slice


def auto_bucket_bytes(bandwidth_bytes: Iterable[int]) -> int:
    """The bytes of a bucket with ``-bucket auto``: as few as possible without losing much time to start-ups.

    Args:
        bandwidth_bytes: for each collective that will run on buckets, the message length in bytes from which the tuned
            table uses the algorithm for long messages. There start-up and transfer take about the same time.
    """
    return START_UPS_PER_BUCKET * max(bandwidth_bytes, default=0)


def plan_buckets(places: Sequence[tuple[int, slice]], n_bytes_per_elem: int, max_bytes: int) -> list[Bucket]:
    """Fuse adjacent layers into buckets of at most ``max_bytes``; a larger layer is a bucket by itself.

    Args:
        places: (layer index, its interval in elements) in layer order. Layers that are not sent are left out; the gap
            that such a layer leaves ends a bucket.
        n_bytes_per_elem: of the flat buffer.
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
    """Divide the flat buffers into what gradients change and what they do not.

    Returns:
        (layer index, its interval with padding) for the layers in which a parameter has an lr_mult other than 0, in
        layer order; and the intervals of the others (frozen layers, BatchNorm's statistics).
    """
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
