"""Which layers one pass computes: a layer, and those behind that it takes in (convolution and ReLU; batch norm, scale
and ReLU). Nets that nobody looks into give up blobs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.layers.base.blob import Blob
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


def find_followers(nodes: Sequence[Node]) -> None:
    """Let layers take in those behind them that work in place: all blobs then hold what Caffe's would."""
    for index, node in enumerate(nodes):
        if not node.n_ahead:
            _take_in(nodes, index, _works_in_place)


def join_layers(net: Net, backward: bool) -> None:
    """Let layers take in as many others as they can, and give what they must keep a place without copies.

    For nets whose blobs nobody looks at. Layers that one pass computes have one top, the last one's, also where they
    were out of place. A layer in place that would keep a copy of its bottom for backward finds it in memory of its own.

    Args:
        net: a built net.
        backward: whether it will run backward too; if not, nothing is kept for it.
    """
    for index, node in enumerate(net.nodes):
        node.layer.forward_only = not backward
        node.seen_shapes = None
        if not node.n_ahead:
            _take_in(net.nodes, index, _can_be_joined)
        if backward and node.layer.keeps_bottom and node.tops[0] is node.bottoms[0]:
            _move_out(net, index)
    net.reshape()


def _take_in(nodes: Sequence[Node], index: int, fits: Callable[[Node, Node], bool]) -> None:
    """Offer a layer those behind it, one after another."""
    node = nodes[index]
    for place in range(index + node.n_behind + 1, len(nodes)):
        behind = nodes[place]
        if not fits(nodes[place - 1], behind) or not node.layer.absorb(behind.layer):
            return
        for other in nodes[index:place]:  # out of place no longer
            other.tops[0] = behind.tops[0]
        for other in nodes[index + 1:place + 1]:
            other.bottoms[0] = behind.tops[0]
        for follower in nodes[place + 1:place + 1 + behind.n_behind]:
            follower.n_ahead = 0  # offered to this layer next
        behind.n_behind, behind.n_ahead = 0, place - index
        node.n_behind += 1


def _can_be_joined(node: Node, behind: Node) -> bool:
    """Whether the layer behind takes this one's only top, and nobody else does."""
    alone = len(node.tops) == len(behind.tops) == len(behind.bottoms) == 1 and not any(node.loss_weights)
    return alone and behind.bottoms[0] is node.tops[0] and behind.tops[0].dtype == node.tops[0].dtype


def _works_in_place(node: Node, behind: Node) -> bool:
    return _can_be_joined(node, behind) and behind.tops[0] is behind.bottoms[0]


def _move_out(net: Net, index: int) -> None:
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
