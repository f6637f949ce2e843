"""Forward passes of a net whose blobs a script may look at: blobs that a pass skips are computed when they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TEST
from scaffe.layers.python import UserBlob
from scaffe.nets.inference.passes import Inference
from scaffe.nets.net import Net

OFTEN = 2  # looks, each after another pass, from which on every pass writes the blob


class WatchedBlob(UserBlob):
    """A blob in host memory that says when somebody is about to look at its data, or to write to it."""

    def __init__(self, blob: Blob, look: Callable[[], Any]) -> None:
        super().__init__(blob)
        self._look = look

    @property
    def data(self) -> np.ndarray:
        """The data, an array in Caffe's order that can be written to."""
        self._look()
        return self._blob.writes.lend(self._blob.data)


class Passes:
    """The forward and backward passes of one net, as a script sees them.

    A whole forward pass of a TEST net runs as ``Inference`` does, and skips blobs between layers of one pass. A look at
    such a blob computes all that were skipped, from the inputs of that pass. Blobs whose arrays somebody holds, and
    those that are looked at again and again, are not skipped. A net that also runs backward runs as in training.
    """

    def __init__(self, net: Net) -> None:
        self._net, self._inference = net, Inference(net)
        self._shown: set[str] = set()
        self._looks: Counter[str] = Counter()
        sources = [top for node in net.nodes if node.is_source for top in node.tops]
        in_place = [top for node in net.nodes if not node.is_source for top in node.tops]
        self._sources = sources
        has_copies = net.context.dtype != net.context.param_dtype  # a look at a copy is not noticed
        self._is_plain = has_copies or net.context.phase != TEST or any(
            top is source for top in in_place for source in sources)
        self._inputs: list[np.ndarray] | None = None  # of the last pass, if it skipped blobs that are not computed yet
        self._spare: list[np.ndarray] = []  # memory for them

    def forward(self, start: int, end: int, wanted: Collection[str]) -> float:
        """Run layers ``start`` to ``end`` forward; the blobs ``wanted`` are looked at afterwards. Returns the loss."""
        if self._is_plain or start > 0 or end < len(self._net.nodes) - 1:
            self.compute_skipped()
            return float(self._net.forward(start, end))
        shown = {name for name in self._inference.hidden if self._net.blobs[name].writes.is_lent or name in wanted
                 or self._looks[name] >= OFTEN}
        if shown:
            self._shown |= shown
            self._inference.release()
            self._inference = Inference(self._net, self._shown)
        loss = self._inference.forward()
        self._inputs = self._kept_inputs() if self._inference.skipped else None
        return loss

    def backward(self, start: int, end: int) -> None:
        """Run layers ``start`` down to ``end`` backward."""
        self.compute_skipped()
        self._is_plain = True
        self._net.backward(start, end)

    def look(self, name: str) -> None:
        """Somebody is about to look at a blob: let it hold what it does in Caffe."""
        if self._inputs is not None and name in self._inference.skipped:
            self._looks[name] += 1
            self.compute_skipped()

    def compute_skipped(self) -> None:
        """Compute the blobs that the last pass has skipped, before anything changes that they are computed from."""
        self._inference.release()
        if self._inputs is None:
            return
        inputs, self._inputs = self._inputs, None
        present = [blob.data_flat.copy() for blob in self._sources]
        self._write_sources(inputs)
        for index, node in enumerate(self._net.nodes):
            if not node.is_source and not node.layer.host_only:  # a user's layer may do more than compute its tops
                self._net.forward(index, index)
        self._write_sources(present)

    def reshaped(self) -> None:
        """The blobs have other shapes; what they held is gone."""
        self._inference.release()
        self._inputs = None

    def _kept_inputs(self) -> list[np.ndarray]:
        """Copies of the sources' data, in the memory of the copies before."""
        arrays = [blob.data_flat for blob in self._sources]
        if [array.shape for array in self._spare] != [array.shape for array in arrays]:
            self._spare = [np.empty_like(array) for array in arrays]
        for spare, array in zip(self._spare, arrays, strict=True):
            np.copyto(spare, array)
        return self._spare

    def _write_sources(self, arrays: Collection[np.ndarray]) -> None:
        for blob, array in zip(self._sources, arrays, strict=True):
            blob.data_flat[...] = array
