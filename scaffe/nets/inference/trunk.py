"""The layers that compute each image of a batch by itself: they can run for some of the images at a time (pure)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TEST
from scaffe.layers.vision.convolution import Convolution
from scaffe.nets.build import build_net
from scaffe.nets.inference.groups import is_in
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node
from scaffe.proto import caffe_pb2

SHARE_OVERHEAD, WAITING, UNCACHED = 0.1, 1.1, 1.05
LEAST_MOST = 4  # images of a share, however large: weights are read for each
IMAGE_AXES = 3  # a source's top with fewer axes is no images


@dataclass
class Trunk:
    """Layers between a source's images and what is no longer by image, such as inner products of whole batches.

    Attributes:
        members: indices of the layers, ascending.
        x: the name of the images.
        ends: names of tops of members that others read, or somebody looks at.
        inner: names of the other tops.
    """

    members: list[int]
    x: str
    ends: list[str]
    inner: set[str]


def find_trunk(net: Net, shown: Collection[str] = (), plain: Collection[int] = ()) -> Trunk | None:
    """The layers from the first images on; None where no convolution is among them, or ranks share the layers.

    Args:
        net: the net.
        shown: names of blobs that must hold what they do in Caffe.
        plain: indices of layers that are not among them.
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
            break  # from here on others write what lies inside
    if not any(isinstance(net.nodes[i].layer, Convolution) for i in members):
        return None
    names = {name for i in members for name in net.nodes[i].top_names}
    read = {name for i, node in enumerate(net.nodes) if i not in members for name in node.bottom_names}
    ends = sorted(names & {*read, *shown, *net.output_names})
    return Trunk(members, net.nodes[members[0]].bottom_names[0], ends, names.difference(ends))


def build_trunk(net: Net, trunk: Trunk, n_images: int) -> Net:
    """A net of a trunk's layers alone, on the same parameters, for so many images.

    Raises:
        UserError: one line that names the layer.
    """
    message = caffe_pb2.NetParameter(name=net.name)
    shape = (n_images, *net.blobs[trunk.x].shape[1:])
    message.layer.add(name=trunk.x, type="Input", top=[trunk.x]).input_param.shape.add(dim=shape)
    for index in trunk.members:
        message.layer.add().CopyFrom(net.nodes[index].param)
    return build_net(message, replace(net.context, fills=False, param_memory=None), trained=net)


def share_length(n_images: int, n_threads: int, most: int) -> int:
    """How many images at a time take the least time, where threads run such shares beside one another.

    A share takes as long as its images and a tenth of one, for the weights' way from memory. Threads that wait for each
    other after each layer take 1.1 times as long; one thread takes 1.05 times as long for more images than the cache
    holds (docs/compute.md).

    Args:
        n_images: of the batch.
        n_threads: threads.
        most: images whose activations the cache holds.

    Returns:
        the length; that of the batch where shares do not pay.
    """
    def seconds(length: int) -> float:
        n_shares = -(-n_images // length)
        return -(-n_shares // n_threads) * (length + SHARE_OVERHEAD)

    lengths = range(min(n_images, max(most, LEAST_MOST)), 0, -1)
    best = min(lengths, key=seconds, default=n_images)
    slowdown = WAITING if n_threads > 1 else UNCACHED if n_images > most else 1
    whole = (n_images + SHARE_OVERHEAD) / n_threads * slowdown
    return best if n_images > 1 and seconds(best) < whole else n_images


def image_bytes(nodes: Sequence[Node], n_images: int) -> int:
    """The most that one of the layers reads and writes of an image, in bytes."""
    return max(sum(blob.n_elems * blob.dtype.itemsize for blob in (*node.bottoms, *node.tops))
               for node in nodes) // max(n_images, 1)


def _reads_images(net: Net, node: Node) -> bool:
    sources = [top for each in net.nodes if each.is_source for top in each.tops]
    return len(node.bottoms) == 1 and is_in(node.bottoms[0], sources) and node.bottoms[0].ndim >= IMAGE_AXES


def _fits(node: Node, inside: Sequence[Blob]) -> bool:
    """Whether a layer that reads what lies inside runs for each image by itself."""
    layer, n_images, images = node.layer, inside[0].shape[0], inside[0]
    return (layer.by_image and layer.context.phase == TEST and not layer.host_only and not layer.reshape_always
            and not any(node.loss_weights) and bool(node.bottoms)
            and all(is_in(blob, inside) for blob in node.bottoms)
            and all(blob is not images and blob.shape[:1] == (n_images,) for blob in node.tops))


def _reads(node: Node, blobs: Sequence[Blob]) -> bool:
    return any(is_in(blob, blobs) for blob in node.bottoms)
