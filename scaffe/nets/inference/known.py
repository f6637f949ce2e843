"""Whether anything that a pass depends on has changed since the last: one look at all of it, instead of one a layer.

Between two layers' products Python's own instructions and data have left the caches, so that each look there takes
several times what it takes in a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.writes import Writes
from scaffe.nets.net import Net


class Known:
    """Shapes and parameters of a net.

    Args:
        net: the net. Where a layer of it may change anything while a pass runs, as a user's may, nothing is known.
    """

    def __init__(self, net: Net) -> None:
        nodes = net.nodes
        self._can_know = not any(node.layer.host_only or node.layer.reshape_always for node in nodes)
        self._parameters = _distinct([blob for node in nodes for blob in node.layer.blobs])
        self._activations = _distinct([blob for node in nodes for blob in (*node.bottoms, *node.tops)])
        self._shapes: list[Shape] | None = None  # at the end of the last whole pass
        self._writes: list[Writes] = []  # of the parameters, at the begin of that pass
        self._counts: list[int] = []

    def begin(self) -> bool:
        """Begin a pass. Returns whether all is as it was in the last, which ended."""
        writes = [blob.writes for blob in self._parameters]
        counts = [each.n for each in writes]
        is_known = (self._can_know and self._shapes == [blob.shape for blob in self._activations]
                    and writes == self._writes and counts == self._counts
                    and not any(each.is_lent for each in writes))
        self._shapes, self._writes, self._counts = None, writes, counts
        return is_known

    def end(self) -> None:
        """End a pass without an error."""
        self._shapes = [blob.shape for blob in self._activations]


def _distinct(blobs: Sequence[Blob]) -> list[Blob]:
    return list({id(blob): blob for blob in blobs}.values())
