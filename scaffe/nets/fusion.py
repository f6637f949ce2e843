"""Fuse layers that one pass can compute: convolution and ReLU; batch norm, scale and ReLU.

A fused layer keeps its place in the net, its parameters and its hooks. Where somebody looks at the blob between two
fused layers (``Net.unfused``, ``after_forward`` hooks, a range of layers that ends there), each runs by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.layers.base.blob import Blob
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


def fuse_in_place(nodes: Sequence[Node]) -> None:
    """Fuse layers that work in place to those that they follow: all blobs then hold what Caffe's would."""
    for index, node in enumerate(nodes):
        if not node.fused_offset:
            _fuse(nodes, index, _works_in_place)


def fuse_layers(net: Net, backward: bool) -> None:
    """Fuse as many layers as can be, and give what they must keep a place without copies.

    For nets whose blobs nobody looks at. Fused layers have one top, the last one's, also where they were out of place.
    A layer in place that would keep a copy of its bottom for backward finds it in memory of its own.

    Args:
        net: a built net.
        backward: whether it will run backward too; if not, nothing is kept for it.
    """
    for index, node in enumerate(net.nodes):
        node.layer.forward_only = not backward
        node.seen_shapes = None
        if not node.fused_offset:
            _fuse(net.nodes, index, _can_fuse)
        if backward and node.layer.keeps_bottom and node.tops[0] is node.bottoms[0]:
            _move_bottom(net, index)
    net.reshape()


def _fuse(nodes: Sequence[Node], index: int, fits: Callable[[Node, Node], bool]) -> None:
    """Fuse to a layer those that follow it, one after another."""
    node = nodes[index]
    for place in range(index + node.n_fused + 1, len(nodes)):
        following = nodes[place]
        if not fits(nodes[place - 1], following) or not node.layer.fuse(following.layer):
            return
        for other in nodes[index:place]:  # out of place no longer
            other.tops[0] = following.tops[0]
        for other in nodes[index + 1:place + 1]:
            other.bottoms[0] = following.tops[0]
        for unfused in nodes[place + 1:place + 1 + following.n_fused]:
            unfused.fused_offset = 0  # offered to this layer next
        following.n_fused, following.fused_offset = 0, place - index
        node.n_fused += 1


def _can_fuse(node: Node, following: Node) -> bool:
    """Whether the layer that follows takes this one's only top, and nobody else does."""
    alone = len(node.tops) == len(following.tops) == len(following.bottoms) == 1 and not any(node.loss_weights)
    return alone and following.bottoms[0] is node.tops[0] and following.tops[0].dtype == node.tops[0].dtype


def _works_in_place(node: Node, following: Node) -> bool:
    return _can_fuse(node, following) and following.tops[0] is following.bottoms[0]


def _move_bottom(net: Net, index: int) -> None:
    """Give the bottom of a layer in place memory of its own, unless it is a batch from outside."""
    shown = net.nodes[index].tops[0]
    makers = [node for node in net.nodes[:index] if _holds(node.tops, shown) or _holds(node.bottoms, shown)]
    if any(node.is_source for node in makers):
        return
    hidden = net.context.blob(dtype=shown.dtype)
    hidden.reshape(shown.shape)
    for node in makers:
        node.tops, node.bottoms = _exchanged(node.tops, shown, hidden), _exchanged(node.bottoms, shown, hidden)
    net.nodes[index].bottoms = [hidden]


def _holds(blobs: Sequence[Blob], blob: Blob) -> bool:
    return any(other is blob for other in blobs)


def _exchanged(blobs: Sequence[Blob], old: Blob, new: Blob) -> list[Blob]:
    return [new if blob is old else blob for blob in blobs]
