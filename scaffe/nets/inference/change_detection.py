"""Detects whether any shape or parameter of a net has changed since its last forward pass.

All of them are compared at once before the pass. Comparing layer by layer takes several times as long, since a layer's
kernels push Python's instructions and data out of the caches.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.writes import Writes
from scaffe.nets.net import Net


class ChangeDetector:
    """Compares a net's shapes and parameters with those of its last pass.

    Args:
        net: the net. If one of its layers may change shapes or parameters within a pass, as a user's may, every pass
            counts as changed.
    """

    def __init__(self, net: Net) -> None:
        nodes = net.nodes
        self._can_detect = not any(node.layer.host_only or node.layer.reshape_always for node in nodes)
        self._parameters = _distinct([blob for node in nodes for blob in node.layer.blobs])
        self._activations = _distinct([blob for node in nodes for blob in (*node.bottoms, *node.tops)])
        self._shapes: list[Shape] | None = None  # at the end of the last complete pass
        self._writes: list[Writes] = []  # of the parameters, at the beginning of that pass
        self._counts: list[int] = []

    def begin(self) -> bool:
        """Begin a pass. Returns whether nothing has changed since the last one, and that one completed."""
        writes = [blob.writes for blob in self._parameters]
        counts = [each.n for each in writes]
        is_unchanged = (self._can_detect and self._shapes == [blob.shape for blob in self._activations]
                    and writes == self._writes and counts == self._counts
                    and not any(each.is_lent for each in writes))
        self._shapes, self._writes, self._counts = None, writes, counts
        return is_unchanged

    def end(self) -> None:
        """Note that the pass has completed without an error."""
        self._shapes = [blob.shape for blob in self._activations]


def _distinct(blobs: Sequence[Blob]) -> list[Blob]:
    return list({id(blob): blob for blob in blobs}.values())
