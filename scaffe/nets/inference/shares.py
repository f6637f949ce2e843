"""Runs a net's trunk for some images of the batch at a time, on threads beside one another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scaffe import forking
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.kernels.plans import Workers
from scaffe.nets.blob_memory import memory_owners
from scaffe.nets.inference.trunk import Trunk, build_trunk, find_trunk, image_bytes, share_length
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node

CACHE_BYTES = 20 << 20  # activations that stay in the last cache beside weights

Make = Callable[[Net, Collection[str], Any], Any]
"""(net, names of blobs that must hold what they do in Caffe, passes whose laid-out weights to use) → passes: an object
with ``forward`` and ``lay_out``, as ``Inference`` has them."""


class Shares:
    """The shares of a batch, of equal length; the last begins within the one before it where they would be too long.

    Each thread has a net of its own, on the same parameters, whose kernels use no other thread: threads wait for each
    other once a pass, and not after each layer; and a share's activations stay in the cache where a batch's would not.
    Weights are laid out for the kernels once, by the first thread of a pass, before any of them computes.

    Args:
        net: the net.
        trunk: the layers that run so.
        make: see ``Make``.

    Attributes:
        first, members: the first of the layers, and all of them.
        ends, inner: see Trunk; a pass does not write ``inner``.
    """

    def __init__(self, net: Net, trunk: Trunk, make: Make) -> None:
        self._net, self._trunk, self._make = net, trunk, make
        self.first, self.members = trunk.members[0], frozenset(trunk.members)
        self.ends, self.inner = trunk.ends, trunk.inner
        self._nodes = [net.nodes[i] for i in trunk.members]
        self._images = self._nodes[0].bottoms[0]
        self._sharers = self._written_sharers()
        self._held, self._lock = threading.local(), forking.Lock()
        self._owner: _Share | None = None
        self._case, self._best = (Shape(), 0), 0  # the best length for images of that shape, on so many threads
        self._shape = Shape()  # of the images in the last pass
        self._turn = 0  # the last pass before which a parameter may have been put in other memory

    def suits(self, workers: Workers | None) -> bool:
        """Whether the next pass runs in shares, on these threads."""
        return workers is not None and 0 < self._length(workers) < self._n_images

    def forward(self, workers: Workers, is_known: bool) -> None:
        """Run the trunk for all images; ``is_known``: no shape and no parameter has changed since the last time.

        Raises:
            UserError: a layer's error, with the layer's name.
        """
        if not is_known or self._shape != self._images.shape:  # what brings data in may change its shape in any pass
            self._turn, self._shape = self._turn + 1, self._images.shape
            for node in self._nodes:
                with node.named():
                    node.reshape()
        for node in self._sharers:
            node.layer.forward(node.bottoms, node.tops)
        for name in self.ends:
            _ = self._net.blobs[name].data_flat  # taken before threads ask for it
        length = self._length(workers)
        starts = iter([min(start, self._n_images - length) for start in range(0, self._n_images, length)])
        workers.run(partial(self._take, starts, length))

    def _written_sharers(self) -> list[Node]:
        """The layers that pass on memory of which the net has what it holds in Caffe."""
        owners = memory_owners(self._net, "shares_data")
        written = {id(owners[id(blob)]) for blob in (self._images, *(self._net.blobs[name] for name in self.ends))}
        return [node for node in self._nodes if node.layer.shares_data and id(owners[id(node.tops[0])]) in written]

    @property
    def _n_images(self) -> int:
        return self._images.shape[0]

    def _length(self, workers: Workers) -> int:
        case = self._images.shape, workers.n_threads
        if case != self._case:
            most = CACHE_BYTES // max(image_bytes(self._nodes, self._n_images), 1)
            self._case, self._best = case, share_length(self._n_images, workers.n_threads, most)
        return self._best

    def _take(self, starts: Iterator[int], length: int) -> None:
        """Run shares until none is left, on one of the threads."""
        share = self._of_thread(length)
        for start in starts:
            share.x.bind_data(self._part(self._images, start, length))
            share.passes.forward()
            for name in self.ends:
                self._net.context.kernels.copy_part(self._part(self._net.blobs[name], start, length),
                                                    share.net.blobs[name].data_flat)

    def _part(self, blob: Blob, start: int, length: int) -> np.ndarray:
        """Some images' elements."""
        n_elems = blob.n_elems // self._n_images
        return blob.data_flat[start * n_elems:(start + length) * n_elems]

    def _of_thread(self, length: int) -> _Share:
        """This thread's net, for so many images, on weights that are laid out."""
        shape, held = (length, *self._images.shape[1:]), getattr(self._held, "share", None)
        with self._lock:
            if self._owner is None or self._owner.x.shape != shape:
                self._owner = held = self._held.share = self._new(length, None)
            owner = self._owner
            if owner.turn != self._turn:
                self._give(owner)
                owner.passes.lay_out()
        if held is None or owner not in (held, held.owner):
            held = self._held.share = self._new(length, owner)
        if held.turn != self._turn:
            self._give(held)
        return held

    def _new(self, length: int, owner: _Share | None) -> _Share:
        net = build_trunk(self._net, self._trunk, length)
        return _Share(net, self._make(net, self.ends, owner and owner.passes), net.blobs[self._trunk.x], owner)

    def _give(self, share: _Share) -> None:
        """Let a thread's net use the parameters' present memory."""
        share.net.share_trained_layers(self._net)
        share.turn = self._turn


def shares_of(net: Net, shown: Collection[str], groups: Collection[Collection[int]], make: Make,
              plain: Collection[int] = ()) -> Shares | None:
    """The shares of a net's batches, if it has layers that may run so.

    Args:
        net, make: as for Shares.
        shown: names of blobs that must hold what they do in Caffe.
        groups: indices of layers that run in one pass.
        plain: indices of layers that run by themselves.
    """
    trunk = find_trunk(net, shown, plain)
    if trunk is None or any(0 < len({*trunk.members}.intersection(group)) < len(group) for group in groups):
        return None
    return Shares(net, trunk, make)


@dataclass
class _Share:
    """A thread's net and its passes, which use the laid-out weights of ``owner``'s, or their own.

    ``turn``: the turn for which it was given its parameters.
    """

    net: Net
    passes: Any
    x: Blob
    owner: _Share | None
    turn: int = 0
