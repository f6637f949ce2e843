"""Finds layers that can run in the pass of the convolution before them, and runs them by one plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from scaffe.layers.arithmetic.eltwise import Eltwise
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer
from scaffe.layers.base.writes import Writes
from scaffe.layers.kernels.plans import InferencePlan, PreparedCalls
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
        if group.added is not None or added is None or any(
                is_in(added, each.tops) for each in nodes[group.members[0]:index]):  # it is not there by then
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


def is_in(blob: Blob, blobs: Sequence[Blob]) -> bool:
    """Whether a blob is one of ``blobs``, by identity."""
    return any(blob is other for other in blobs)


class FusedConvolution:
    """Runs one group of layers by an InferencePlan.

    Args:
        lays_out: whether a pass lays out weights that may have changed; if not, ``lay_out`` must be called.

    Attributes:
        plan: the plan for the bottom's shape; None if there is none, and layers run one by one.
    """

    def __init__(self, nodes: list[Node], group: Group, lays_out: bool) -> None:
        self.group, self._lays_out = group, lays_out
        self._nodes = [nodes[i] for i in group.members]
        self._blobs = [blob for node in self._nodes for blob in node.layer.blobs]
        self._activations = list({id(b): b for node in self._nodes for b in (*node.bottoms, *node.tops)}.values())
        self._known_shapes: list[tuple[int, ...]] | None = None  # for which all layers were reshaped
        self._make: Callable[[], InferencePlan | None] = partial(
            self._nodes[0].layer.inference_plan, group.x, group.y, group.relu_slope, group.added is not None)
        self._shape, self.plan = group.x.shape, self._make()
        self._seen: list[tuple[Writes, int]] | None = None  # write counts of the parameters that the plan holds

    def __call__(self, is_unchanged: bool) -> None:
        """Run the group. ``is_unchanged``: no shape and no parameter has changed since the last pass."""
        group = self.group
        if not is_unchanged or group.x.shape != self._shape:  # a data layer may change its shape in any pass
            self._update_plan()
        if self.plan is None:
            self._run_alone()
            return
        self.plan.forward(group.x.data_flat, group.y.data_flat, None if group.added is None else group.added.data_flat)

    @property
    def blobs(self) -> list[Blob]:
        return [blob for blob in (self.group.x, self.group.y, self.group.added) if blob is not None]

    @property
    def has_current_shapes(self) -> bool:
        """Whether the plan was made for the bottom's shape, and the added blob has the top's shape."""
        x, y, added = self.group.x, self.group.y, self.group.added
        return x.shape == self._shape and (added is None or added.shape == y.shape)

    def prepare_calls(self) -> PreparedCalls | None:
        if self.plan is None:
            return None
        x, y, *added = (blob.data_flat for blob in self.blobs)
        return self.plan.prepare_calls(x, y, *added)

    def share_weights(self, lead: FusedConvolution) -> None:
        """Use the weights that ``lead``, which runs the same layers, lays out."""
        if self.plan is not None:
            self.plan.share_weights(lead.plan)

    def lay_out(self) -> None:
        """Fold and lay out the weights, if they may have changed since the last time."""
        writes = [(blob.writes, blob.writes.n) for blob in self._blobs]
        if self.plan is not None and (writes != self._seen or any(each.is_lent for each, _ in writes)):
            self.plan.set_weights(*folded(self._nodes[0].layer, self.group.affine))
            self._seen = writes

    def _update_plan(self) -> None:
        self._reshape()
        if self.group.x.shape != self._shape:
            self._shape, self.plan, self._seen = self.group.x.shape, self._make(), None
        if self._lays_out:
            self.lay_out()

    def _reshape(self) -> None:
        if [blob.shape for blob in self._activations] == self._known_shapes:
            return
        for node in self._nodes:
            with node.named():
                node.reshape()
        self._known_shapes = [blob.shape for blob in self._activations]

    def _run_alone(self) -> None:
        for node in self._nodes:
            with node.named():
                node.layer.forward(node.bottoms, node.tops)


def folded(convolution: Layer, following: Collection[Layer]) -> tuple[np.ndarray, np.ndarray]:
    """Fold layers that scale and shift channels into the convolution before them, in float64. Returns the folded
    weights and bias, float32, of the shapes of the layer's own.

    Args:
        convolution: the layer; its first blob is (n_output, ...), the second, if there is one, (n_output,).
        following: layers with ``per_channel`` numbers, in order.
    """
    w, *bias = (blob.data for blob in convolution.blobs)
    factor, b = np.ones(len(w)), bias[0].astype(np.float64) if bias else np.zeros(len(w))
    for layer in following:
        scale, shift = layer.per_channel() or (None, None)
        if scale is not None:
            factor, b = factor * scale, b * scale
        if shift is not None:
            b = b + shift
    if not following:
        return w, b.astype(np.float32)
    return (w * factor.reshape(-1, *[1] * (w.ndim - 1))).astype(np.float32), b.astype(np.float32)
