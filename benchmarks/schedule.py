"""How fast an iteration could be: messages one after another on their own, layers one after another on theirs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """One bucket's messages, in seconds.

    Attributes:
        first_layer: forward needs it before this layer; backward completes it with this layer.
        down, up: how long its parameters take to every rank, and its gradients to their sums.
    """

    first_layer: int
    down: float
    up: float


def shortest_iteration(forward: Sequence[float], backward: Sequence[float], buckets: Sequence[Traffic]) -> float:
    """Seconds of an iteration whose messages cost the computing nothing.

    All parameters' messages are posted at the start, in the order of the buckets, and run one at a time; a layer waits
    for its bucket's. A bucket's gradients follow as soon as backward has passed its first layer (S-Caffe, 4.2 and 4.3).

    Args:
        forward, backward: seconds of each layer.
        buckets: in layer order.
    """
    arrivals, network = {}, 0.0
    for bucket in buckets:
        network += bucket.down
        arrivals[bucket.first_layer] = network
    now = 0.0
    for layer, seconds in enumerate(forward):
        now = max(now, arrivals.get(layer, 0.0)) + seconds
    ups = {bucket.first_layer: bucket.up for bucket in buckets}
    for layer in reversed(range(len(backward))):
        now += backward[layer]
        if layer in ups:
            network = max(network, now) + ups[layer]
    return max(now, network)


def hideable(forward: Sequence[float], backward: Sequence[float], buckets: Sequence[Traffic]) -> float:
    """Seconds of communication that the best schedule hides: all but what nothing is left to compute beside."""
    alone = sum(forward) + sum(backward) + sum(b.down + b.up for b in buckets)
    return alone - shortest_iteration(forward, backward, buckets)
