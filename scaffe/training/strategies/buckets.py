"""Buckets: runs of whole layers in the flat buffers that travel as one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scaffe.flags import Flags
from scaffe.nets.flat_params import FlatParams

START_UPS_PER_BUCKET = 4
"""A bucket's bytes take so many times as long as its start-up: one part in five is lost, were nothing hidden."""


def add_bucket_flag(flags: Flags) -> None:
    """Add ``-bucket``."""
    flags.flag("bucket", "auto", "bytes sent as one message; 0: by layer", kind=_bucket_bytes, metavar="N")


def _bucket_bytes(text: str) -> str:
    if text != "auto" and not text.isdecimal():
        raise ValueError("must be auto or a number of bytes")
    return text


@dataclass(frozen=True)
class Bucket:
    """A run of layers whose parameters lie side by side.

    Attributes:
        first_layer, last_layer: the layers at its ends: forward needs it before the first, backward completes it
            with the first.
        place: its interval of the flat buffers.
    """

    first_layer: int
    last_layer: int
    place: slice


def auto_bucket_bytes(bandwidth_bytes: Iterable[int]) -> int:
    """How long ``-bucket auto`` makes a bucket: as short as it can be without losing time to start-ups.

    Args:
        bandwidth_bytes: for each collective that will run on buckets, the length from which the tuned table uses the
            algorithm for long messages: there a start-up costs about as much as the bytes.
    """
    return START_UPS_PER_BUCKET * max(bandwidth_bytes, default=0)


def plan_buckets(places: Sequence[tuple[int, slice]], n_bytes_per_elem: int, max_bytes: int) -> list[Bucket]:
    """Fuse neighbouring layers until a bucket holds ``max_bytes``; a larger layer is a bucket of its own.

    Args:
        places: (layer index, its interval) in layer order; layers that must not travel are left out, and a gap that
            one leaves ends a bucket.
        n_bytes_per_elem: of the buffer.
        max_bytes: 0 makes every layer a bucket.
    """
    buckets: list[Bucket] = []
    for layer, place in places:
        last = buckets[-1] if buckets else None
        fits = last is not None and last.place.stop == place.start and (
            (place.stop - last.place.start) * n_bytes_per_elem <= max_bytes)
        if last is not None and fits:
            buckets[-1] = Bucket(last.first_layer, layer, slice(last.place.start, place.stop))
        else:
            buckets.append(Bucket(layer, layer, place))
    return buckets


def trainable_intervals(params: FlatParams) -> tuple[list[tuple[int, slice]], list[slice]]:
    """What of the flat buffers gradients change, and what they do not.

    Returns:
        (layer index, its interval with padding) of the layers that have a learning rate, in layer order; and the
        intervals of the others (frozen layers, BatchNorm's statistics).
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
