"""Per-image parallelism: threads run the first layers of a net, which compute each image by itself, for some images."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from scaffe import forking
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import TEST
from scaffe.layers.kernels.plans import Workers
from scaffe.layers.vision.convolution import Convolution
from scaffe.nets.blob_memory import memory_owners
from scaffe.nets.build import build_net
from scaffe.nets.inference.fused_convolution import is_in
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node
from scaffe.proto import caffe_pb2

PART_OVERHEAD, WAITING, UNCACHED = 0.1, 1.1, 1.05
LEAST_MOST = 4  # images of a part, however large: weights are read again for each part
IMAGE_AXES = 3  # a source's top with fewer axes is no images


@dataclass
class PerImagePrefix:
    """The layers from a source's images up to those that need the whole batch, such as inner products.

    Attributes:
        members: indices of the layers, ascending.
        ends: names of tops of members that other layers read, or that must be written.
        inner: names of the members' other tops.
    """

    members: list[int]
    x: str
    ends: list[str]
    inner: set[str]


def find_per_image_prefix(net: Net, shown: Collection[str] = (), plain: Collection[int] = ()) -> PerImagePrefix | None:
    """Find the per-image prefix; None if it has no convolution, or if ranks share the layers.

    Args:
        shown: names of blobs that must be written, with Caffe's values.
        plain: indices of layers that run one by one, and are not members.
    """
    members: list[int] = []
    inside: list[Blob] = []
    sources = [top for node in net.nodes if node.is_source for top in node.tops]
    if net.parts is not None:
        return None
    for index, node in enumerate(net.nodes):
        if not inside and len(node.bottoms) == 1 and is_in(node.bottoms[0], sources) and (
                node.bottoms[0].ndim >= IMAGE_AXES):
            inside.append(node.bottoms[0])
        if inside and index not in plain and _fits(node, inside):
            members.append(index)
            inside += node.tops
        elif any(is_in(blob, inside) for blob in node.tops) or (node.layer.shares_data and _reads(node, inside)):
            break  # from here on, layers outside write what the members compute
    if not any(isinstance(net.nodes[i].layer, Convolution) for i in members):
        return None
    names = {name for i in members for name in net.nodes[i].top_names}
    read = {name for i, node in enumerate(net.nodes) if i not in members for name in node.bottom_names}
    ends = sorted(names & {*read, *shown, *net.output_names})
    return PerImagePrefix(members, net.nodes[members[0]].bottom_names[0], ends, names.difference(ends))


def build_prefix_net(net: Net, prefix: PerImagePrefix, n_images: int) -> Net:
    """Build a net of the prefix's layers alone, on the same parameters, for so many images. Raises UserError."""
    message = caffe_pb2.NetParameter(name=net.name)
    shape = (n_images, *net.blobs[prefix.x].shape[1:])
    message.layer.add(name=prefix.x, type="Input", top=[prefix.x]).input_param.shape.add(dim=shape)
    for index in prefix.members:
        message.layer.add().CopyFrom(net.nodes[index].param)
    return build_net(message, replace(net.context, fills=False, param_memory=None), trained=net)


def images_at_once(n_images: int, n_threads: int, most: int) -> int:
    """How many images a thread takes at a time for the shortest total time.

    The model: a part takes the time of its images plus that of a tenth of an image, to read the weights. Threads that
    wait for each other after each layer take 1.1 times as long; one thread takes 1.05 times as long for more images
    than the cache holds (docs/design/cpu_kernels.md). Returns the number of images; ``n_images`` where splitting the
    batch does not pay off.

    Args:
        most: images whose activations the cache holds.
    """
    def seconds(length: int) -> float:
        n_parts = -(-n_images // length)
        return -(-n_parts // n_threads) * (length + PART_OVERHEAD)

    lengths = range(min(n_images, max(most, LEAST_MOST)), 0, -1)
    best = min(lengths, key=seconds, default=n_images)
    slowdown = WAITING if n_threads > 1 else UNCACHED if n_images > most else 1
    whole = (n_images + PART_OVERHEAD) / n_threads * slowdown
    return best if n_images > 1 and seconds(best) < whole else n_images


def image_bytes(nodes: Sequence[Node], n_images: int) -> int:
    """Bytes that the layer with the largest blobs reads and writes for one image."""
    return max(sum(blob.n_elems * blob.dtype.itemsize for blob in (*node.bottoms, *node.tops))
               for node in nodes) // max(n_images, 1)


def _fits(node: Node, inside: Sequence[Blob]) -> bool:
    """Whether a layer reads only members' blobs, and computes each image by itself."""
    layer, n_images, images = node.layer, inside[0].shape[0], inside[0]
    return (layer.by_image and layer.context.phase == TEST and not layer.host_only and not layer.reshape_always
            and not any(node.loss_weights) and bool(node.bottoms)
            and all(is_in(blob, inside) for blob in node.bottoms)
            and all(blob is not images and blob.shape[:1] == (n_images,) for blob in node.tops))


def _reads(node: Node, blobs: Sequence[Blob]) -> bool:
    return any(is_in(blob, blobs) for blob in node.bottoms)


CACHE_BYTES = 20 << 20  # activations that stay in the last cache beside weights

Make = Callable[[Net, Collection[str], Any], Any]
"""(net, names of blobs that must be written, passes whose laid-out weights to use) → passes: an object with ``forward``
and ``lay_out``, as ``Inference`` has them."""


class PerImageParallelism:
    """Runs a net's per-image prefix on several threads, each of which takes parts of the batch until none is left.

    All parts have as many images; the last one overlaps the one before where the batch is no multiple. Each thread has
    a net of its own, on the same parameters, whose kernels use no other thread. So threads wait for each other once a
    pass instead of after each layer, and a part's activations stay in the cache where a batch's would not. The first
    thread of a pass lays weights out for all of them."""

    def __init__(self, net: Net, prefix: PerImagePrefix, make: Make) -> None:
        self._net, self._prefix, self._make = net, prefix, make
        self.first, self.members = prefix.members[0], frozenset(prefix.members)
        self.ends, self.inner = prefix.ends, prefix.inner
        self._nodes = [net.nodes[i] for i in prefix.members]
        self._images = self._nodes[0].bottoms[0]
        owners = memory_owners(net, "shares_data")  # layers whose tops share memory with a blob that the net keeps:
        written = {id(owners[id(blob)]) for blob in (self._images, *(net.blobs[name] for name in self.ends))}
        self._sharers = [node for node in self._nodes if node.layer.shares_data
                         and id(owners[id(node.tops[0])]) in written]
        self._held, self._lock = threading.local(), forking.Lock()
        self._owner: _ThreadNet | None = None
        self._case, self._best = (Shape(), 0), 0  # images at a time, for this shape and number of threads
        self._shape = Shape()  # of the images in the last pass
        self._generation = 0  # counts passes before which parameters may have moved

    def pays_off(self, workers: Workers | None) -> bool:
        """Whether the next pass runs faster in parts, on these threads."""
        return workers is not None and 0 < self._length(workers) < self._n_images

    def forward(self, workers: Workers, is_unchanged: bool) -> None:
        """Run the prefix for all images. ``is_unchanged``: shapes and parameters are those of the last pass. Raises
        UserError, a layer's error, with the layer's name."""
        if not is_unchanged or self._shape != self._images.shape:  # a data layer may change its shape in any pass
            self._generation, self._shape = self._generation + 1, self._images.shape
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

    @property
    def _n_images(self) -> int:
        return self._images.shape[0]

    def _length(self, workers: Workers) -> int:
        case = self._images.shape, workers.n_threads
        if case != self._case:
            most = CACHE_BYTES // max(image_bytes(self._nodes, self._n_images), 1)
            self._case, self._best = case, images_at_once(self._n_images, workers.n_threads, most)
        return self._best

    def _take(self, starts: Iterator[int], length: int) -> None:
        thread_net = self._of_thread(length)
        for start in starts:
            thread_net.x.bind_data(self._part(self._images, start, length))
            thread_net.passes.forward()
            for name in self.ends:
                self._net.context.kernels.copy_part(self._part(self._net.blobs[name], start, length),
                                                    thread_net.net.blobs[name].data_flat)

    def _part(self, blob: Blob, start: int, length: int) -> np.ndarray:
        n_elems = blob.n_elems // self._n_images
        return blob.data_flat[start * n_elems:(start + length) * n_elems]

    def _of_thread(self, length: int) -> _ThreadNet:
        """This thread's net for ``length`` images, whose weights are laid out."""
        shape, held = (length, *self._images.shape[1:]), getattr(self._held, "thread_net", None)
        with self._lock:
            if self._owner is None or self._owner.x.shape != shape:
                self._owner = held = self._held.thread_net = self._new(length, None)
            owner = self._owner
            if owner.generation != self._generation:
                self._give(owner)
                owner.passes.lay_out()
        if held is None or owner not in (held, held.owner):
            held = self._held.thread_net = self._new(length, owner)
        if held.generation != self._generation:
            self._give(held)
        return held

    def _new(self, length: int, owner: _ThreadNet | None) -> _ThreadNet:
        net = build_prefix_net(self._net, self._prefix, length)
        return _ThreadNet(net, self._make(net, self.ends, owner and owner.passes), net.blobs[self._prefix.x], owner)

    def _give(self, thread_net: _ThreadNet) -> None:
        thread_net.net.share_trained_layers(self._net)
        thread_net.generation = self._generation


def parallelize_per_image(net: Net, shown: Collection[str], groups: Collection[Collection[int]], make: Make,
                          plain: Collection[int] = ()) -> PerImageParallelism | None:
    """Per-image parallelism for a net, or None where it has no layers that may run so.

    Args:
        shown: names of blobs that must be written, with Caffe's values.
        plain: indices of layers that run one by one.
    """
    prefix = find_per_image_prefix(net, shown, plain)
    if prefix is None or any(0 < len({*prefix.members}.intersection(group)) < len(group) for group in groups):
        return None
    return PerImageParallelism(net, prefix, make)


@dataclass
class _ThreadNet:
    """A thread's net and its passes, on the weights that ``owner`` has laid out, or on its own. ``generation``: count
    of the pass for which it was given its parameters."""

    net: Net
    passes: Any
    x: Blob
    owner: _ThreadNet | None
    generation: int = 0
