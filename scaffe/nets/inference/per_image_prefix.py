"""Finds the first layers of a net, which compute each image by itself and can run for part of a batch (pure)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TEST
from scaffe.layers.vision.convolution import Convolution
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
    if net.parts is not None:
        return None
    for index, node in enumerate(net.nodes):
        if not inside and _reads_images(net, node):
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
    than the cache holds (docs/compute.md). Returns the number of images; ``n_images`` where splitting the batch does
    not pay off.

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


def _reads_images(net: Net, node: Node) -> bool:
    sources = [top for each in net.nodes if each.is_source for top in each.tops]
    return len(node.bottoms) == 1 and is_in(node.bottoms[0], sources) and node.bottoms[0].ndim >= IMAGE_AXES


def _fits(node: Node, inside: Sequence[Blob]) -> bool:
    """Whether a layer reads only members' blobs, and computes each image by itself."""
    layer, n_images, images = node.layer, inside[0].shape[0], inside[0]
    return (layer.by_image and layer.context.phase == TEST and not layer.host_only and not layer.reshape_always
            and not any(node.loss_weights) and bool(node.bottoms)
            and all(is_in(blob, inside) for blob in node.bottoms)
            and all(blob is not images and blob.shape[:1] == (n_images,) for blob in node.tops))


def _reads(node: Node, blobs: Sequence[Blob]) -> bool:
    return any(is_in(blob, blobs) for blob in node.bottoms)
