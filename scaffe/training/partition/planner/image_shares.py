"""In which ways a layer on images (N, C, H, W) can be cut, by channels or by rows of pixels, and what halos it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from scaffe.collectives.planning.partition import bounds
from scaffe.nets.net_layer import Node
from scaffe.training.partition.kinds import BY_BANDS, BY_CHANNELS, OUTPUTS
from scaffe.training.partition.planner.joints import Joint, joined_axis
from scaffe.training.partition.planner.windows import window_of

ELEMENTWISE = ("ReLU", "Dropout", "Sigmoid", "TanH", "ELU", "AbsVal", "BNLL", "Power", "Exp", "Log", "Split", "Eltwise")
STOCHASTIC = 2


@dataclass(frozen=True)
class Share:
    """What one way to share a layer needs.

    Attributes:
        length: places that are shared out, one a rank at least.
        halo: elements an image that a rank between two others receives from them.
        together: lengths that must be cut at the same fractions: groups, and the channels that belong to them.
        joint: what ranks exchange where the axis that is cut is joined or sliced.
    """

    length: int
    halo: int = 0
    together: tuple[int, ...] = ()
    joint: Joint | None = None

    def fits(self, n_partitions: int) -> bool:
        """Whether so many ranks can share it."""
        units = min(self.together, default=1)
        return n_partitions <= self.length and all(
            bounds(rank, n_partitions, n)[0] == bounds(rank, n_partitions, units)[0] * (n // units)
            for n in self.together for rank in range(n_partitions))


Shares = dict[str, Share]


def image_shares(node: Node) -> Shares:
    """The kinds in which a layer of a built net can be cut, besides those of matrices; none for other blobs."""
    blobs = (*node.bottoms, *node.tops)
    if not node.bottoms or not all(blob.ndim == 4 and prod(blob.shape) for blob in blobs):
        return {}
    if any(spec.name for spec in node.param.param) or node.param.type not in _SHARES:
        return {}
    return _SHARES[node.param.type](node)


def _both(node: Node) -> Shares:
    """Of layers that treat elements, or channels, one by one."""
    _, n_channels, height, _ = node.bottoms[0].shape
    return {BY_CHANNELS: Share(n_channels), BY_BANDS: Share(height)}


def _of_filters(node: Node) -> Shares:
    if len(node.bottoms) > 1 or node.bottoms[0].axis(node.param.convolution_param.axis) != 1:
        return {}
    group, n_inputs, n_outputs = node.param.convolution_param.group, node.bottoms[0].shape[1], node.tops[0].shape[1]
    found = {OUTPUTS: Share(n_outputs)} if group == 1 else {
        BY_CHANNELS: Share(group, together=(group, n_inputs, n_outputs))}
    window: Any = window_of(node.param, BY_BANDS)
    return found | (_bands(node) if node.param.type == "Convolution" or window.stride <= window.extent else {})


def _of_pooling(node: Node) -> Shares:
    p = node.param.pooling_param
    if p.pool == STOCHASTIC:
        return {}
    found = {BY_CHANNELS: Share(node.bottoms[0].shape[1])}
    return found | (_bands(node) if not p.global_pooling and len(node.tops) == 1 else {})


def _of_lrn(node: Node) -> Shares:
    found = _both(node)
    _, n_channels, height, width = node.bottoms[0].shape
    for kind, others in ((BY_CHANNELS, height * width), (BY_BANDS, n_channels * width)):
        window = window_of(node.param, kind)
        if window is not None:
            found[kind] = Share(found[kind].length, window.halo * others)
    return found


def _bands(node: Node) -> Shares:
    """Of a layer with windows along the height."""
    window = window_of(node.param, BY_BANDS)
    _, n_channels, height, width = node.bottoms[0].shape
    halo = window.halo * n_channels * width if window is not None else 0
    return {BY_BANDS: Share(min(height, node.tops[0].shape[2]), halo)}


def _of_norm(node: Node) -> Shares:
    """Of Scale and Bias with a learned number a channel."""
    p = node.param.scale_param if node.param.type == "Scale" else node.param.bias_param
    return _both(node) if len(node.bottoms) == 1 and (p.axis, p.num_axes) == (1, 1) else {}


def _of_joint(node: Node) -> Shares:
    """Of Concat and Slice: along their own axis pieces change their rank; nothing is cut where images are joined."""
    own, shares = joined_axis(node.param, node.bottoms[0].ndim), _both(node)
    kind = {1: BY_CHANNELS, 2: BY_BANDS}.get(own, "")
    if kind:
        shares[kind] = joint_share(node, own)
    return shares if own != 0 else {}


def joint_share(node: Node, axis: int) -> Share:
    """What Concat or Slice needs where the axis that it joins or slices is cut: a place of each part for every rank."""
    parts, wholes = (node.bottoms, node.tops) if node.param.type == "Concat" else (node.tops, node.bottoms)
    lengths, shape = tuple(blob.shape[axis] for blob in parts), wholes[0].shape
    return Share(min(lengths), joint=Joint(lengths, prod(shape[1:]) // shape[axis]))


_SHARES: dict[str, Callable[[Node], Shares]] = {
    **dict.fromkeys((*ELEMENTWISE, "PReLU", "BatchNorm"), _both),
    "Convolution": _of_filters, "Deconvolution": _of_filters, "LocalConvolution": _bands,
    "Pooling": _of_pooling, "LRN": _of_lrn, "LCN": _bands, "Scale": _of_norm, "Bias": _of_norm,
    "Concat": _of_joint, "Slice": _of_joint}
