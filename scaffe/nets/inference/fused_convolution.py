"""Runs a convolution and the layers fused with it by one plan; weights are laid out again if they may have changed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer
from scaffe.layers.base.writes import Writes
from scaffe.layers.kernels.plans import InferencePlan, PreparedCalls
from scaffe.nets.inference.groups import Group
from scaffe.nets.net_layer import Node


class FusedConvolution:
    """Runs one group of layers by an InferencePlan.

    Args:
        nodes: the net's layers.
        group: the convolution and the layers that its plan computes with it.
        lays_out: whether a pass lays out weights that may have changed; if not, ``lay_out`` must be called.

    Attributes:
        group: as given.
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
        """The blobs that the plan reads and writes."""
        return [blob for blob in (self.group.x, self.group.y, self.group.added) if blob is not None]

    @property
    def has_current_shapes(self) -> bool:
        """Whether the plan was made for the bottom's shape, and the added blob has the top's shape."""
        x, y, added = self.group.x, self.group.y, self.group.added
        return x.shape == self._shape and (added is None or added.shape == y.shape)

    def prepare_calls(self) -> PreparedCalls | None:
        """The prepared calls of the group for its blobs' present memory; None if the plan has none."""
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
        """Make a plan for the present shapes if they have changed, and lay out weights that have."""
        self._reshape()
        if self.group.x.shape != self._shape:
            self._shape, self.plan, self._seen = self.group.x.shape, self._make(), None
        if self._lays_out:
            self.lay_out()

    def _reshape(self) -> None:
        """Reshape all layers, unless no shape has changed."""
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
    """Fold layers that scale and shift channels into the convolution before them, in float64.

    Args:
        convolution: the layer; its first blob is (n_output, ...), the second, if there is one, (n_output,).
        following: layers with ``per_channel`` numbers, in order.

    Returns:
        the folded weights and bias, float32, of the shapes of the layer's own.
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
