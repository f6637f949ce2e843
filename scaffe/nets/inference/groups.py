"""Finds the layers of a net that can run in the pass of the convolution before them, if the net is not trained."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from scaffe.layers.arithmetic.eltwise import Eltwise
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer
from scaffe.layers.vision.convolution import Convolution
from scaffe.nets.net_layer import Node


@dataclass
class Group:
    """A convolution and the layers after it that run in its pass.

    Attributes:
        members: indices of the layers, ascending; the first is the convolution.
        x, y: the convolution's bottom, and the top of the last member.
        affine: the members that scale and shift each channel, in order.
        added: the blob that an Eltwise sum among the members adds; None if there is none.
        relu_slope: slope below 0 of the ReLU at the end; None if there is none.
        hidden: names of the members' tops that are not written.
    """

    members: list[int]
    x: Blob
    y: Blob
    affine: list[Layer] = field(default_factory=list)
    added: Blob | None = None
    relu_slope: float | None = None
    hidden: list[str] = field(default_factory=list)


def find_groups(nodes: Sequence[Node], shown: Collection[str] = (), plain: Collection[int] = ()) -> list[Group]:
    """The groups of a net, in order. Each convolution that can run so is in one, alone if no layer can join it.

    Args:
        nodes: the net's layers.
        shown: names of blobs that must be written; others between two members may be hidden.
        plain: indices of layers that are in no group.
    """
    found = []
    for index, node in enumerate(nodes):
        is_head = isinstance(node.layer, Convolution) and len(node.bottoms) == 1 and not any(node.loss_weights)
        if is_head and index not in plain:
            group = Group([index], node.bottoms[0], node.tops[0])
            while _take_next(nodes, group, shown, plain):
                pass
            found.append(group)
    return found


def _take_next(nodes: Sequence[Node], group: Group, shown: Collection[str], plain: Collection[int]) -> bool:
    """Add the layer that reads the group's top to the group, if it fits. Returns whether it did."""
    users = [i for i in range(group.members[-1] + 1, len(nodes)) if is_in(group.y, nodes[i].bottoms)]
    if not users:
        return False
    index, last = users[0], nodes[group.members[-1]]
    node, name = nodes[index], last.top_names[0]
    if len(node.tops) != 1 or any(node.loss_weights) or node.layer.host_only or index in plain:
        return False
    leaves = node.tops[0] is not group.y
    if leaves and (len(users) > 1 or name in shown or node.tops[0].dtype != group.y.dtype):
        return False
    if not _absorb(nodes, group, index):
        return False
    group.members.append(index)
    if leaves:
        group.hidden.append(name)
        group.y = node.tops[0]
    return True


def _absorb(nodes: Sequence[Node], group: Group, index: int) -> bool:
    """Note in the group what the layer computes; returns False if a convolution's pass cannot do it."""
    node, slope = nodes[index], getattr(nodes[index].layer, "relu_slope", None)
    if group.relu_slope is not None:
        return False
    if slope is not None:
        group.relu_slope = slope
        return True
    if isinstance(node.layer, Eltwise):
        added = _other(node, group.y)
        if group.added is not None or added is None or not _is_ready(nodes, added, group.members[0], index):
            return False
        group.added = added
        return True
    if group.added is None and len(node.bottoms) == 1 and node.layer.per_channel() is not None:
        group.affine.append(node.layer)
        return True
    return False


def _other(node: Node, blob: Blob) -> Blob | None:
    """The blob that a sum of two adds to ``blob``; None if the layer is no such sum, or works in place."""
    if not (isinstance(node.layer, Eltwise) and node.layer.adds_two) or is_in(node.tops[0], node.bottoms):
        return None
    others = [bottom for bottom in node.bottoms if bottom is not blob]
    return others[0] if len(others) == 1 else None


def _is_ready(nodes: Sequence[Node], blob: Blob, head: int, index: int) -> bool:
    """Whether the blob has, when layer ``head`` runs, the values that layer ``index`` reads."""
    return not any(is_in(blob, node.tops) for node in nodes[head:index])


def is_in(blob: Blob, blobs: Sequence[Blob]) -> bool:
    """Whether a blob is one of ``blobs``, by identity."""
    return any(blob is other for other in blobs)
