"""How images can be cut, and the index maps of Concat and Slice along a cut axis; pure index arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Any

from scaffe.collectives.planning.plan import bounds
from scaffe.layers.reshaping.concat_slice import cut_points
from scaffe.nets.net_layer import Node
from scaffe.training.partition.planner.windows import window_of
from scaffe.training.partition.sharding import BY_BANDS, BY_CHANNELS, OUTPUTS


@dataclass(frozen=True)
class Piece:
    """Places that one rank has of a part, and one rank, often another, of the whole.

    Attributes:
        start, stop: its places, counted in the whole.
    """

    part: int
    part_rank: int
    whole_rank: int
    start: int
    stop: int


@dataclass(frozen=True)
class IndexMap:
    """Maps parts to the whole that they make up, one behind the other, where each and the whole are cut for the ranks.
    ``area``: elements of an image at each place."""

    lengths: tuple[int, ...]
    area: int = 1

    @property
    def starts(self) -> list[int]:
        """Where each part begins in the whole, and the end."""
        return list(accumulate(self.lengths, initial=0))

    def pieces(self, n_ranks: int) -> list[Piece]:
        """All pieces, in the order of the whole."""
        found = []
        wholes = [bounds(rank, n_ranks, sum(self.lengths)) for rank in range(n_ranks)]
        for part, (start, length) in enumerate(zip(self.starts, self.lengths, strict=False)):
            for part_rank in range(n_ranks):
                own = [start + at for at in bounds(part_rank, n_ranks, length)]
                for whole_rank, whole in enumerate(wholes):
                    first, last = max(own[0], whole[0]), min(own[1], whole[1])
                    if first < last:
                        found.append(Piece(part, part_rank, whole_rank, first, last))
        return found

    def sent(self, n_ranks: int) -> int:
        """Elements an image that the rank sends which sends most, from parts to the whole."""
        sent = [0] * n_ranks
        for piece in self.pieces(n_ranks):
            if piece.part_rank != piece.whole_rank:
                sent[piece.part_rank] += piece.stop - piece.start
        return self.area * max(sent)


def joined_axis(layer: Any, n_axes: int) -> int:
    """The axis along which a Concat or Slice works; counted from the front."""
    p: Any = layer.concat_param if layer.type == "Concat" else layer.slice_param
    older = "concat_dim" if layer.type == "Concat" else "slice_dim"
    axis = getattr(p, older) if p.HasField(older) else p.axis
    return int(axis % n_axes)


def index_map_of(layer: Any, lengths: tuple[int, ...]) -> IndexMap:
    """The index map of a Concat or Slice along the axis that is cut, from its whole bottoms' lengths."""
    if layer.type == "Concat":
        return IndexMap(lengths)
    points = cut_points(lengths[0], len(layer.top), list(layer.slice_param.slice_point))
    return IndexMap(tuple(end - start for start, end in pairwise(points)))


ELEMENTWISE = ("ReLU", "Dropout", "Sigmoid", "TanH", "ELU", "AbsVal", "BNLL", "Power", "Exp", "Log", "Split", "Eltwise")
STOCHASTIC = 2


@dataclass(frozen=True)
class Share:
    """What one way to share a layer needs.

    Attributes:
        length: places that are shared out, one a rank at least.
        halo: elements an image that a rank between two others receives from them.
        together: lengths that must be cut at the same fractions: groups, and the channels that belong to them.
        index_map: what ranks exchange where the axis that is cut is joined or sliced.
    """

    length: int
    halo: int = 0
    together: tuple[int, ...] = ()
    index_map: IndexMap | None = None

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


def _of_concat_or_slice(node: Node) -> Shares:
    """Of Concat and Slice: along their own axis pieces change their rank; nothing is cut where images are joined."""
    own, shares = joined_axis(node.param, node.bottoms[0].ndim), _both(node)
    kind = {1: BY_CHANNELS, 2: BY_BANDS}.get(own, "")
    if kind:
        shares[kind] = index_map_share(node, own)
    return shares if own != 0 else {}


def index_map_share(node: Node, axis: int) -> Share:
    """What Concat or Slice needs where the axis that it joins or slices is cut: a place of each part for every rank."""
    parts, wholes = (node.bottoms, node.tops) if node.param.type == "Concat" else (node.tops, node.bottoms)
    lengths, shape = tuple(blob.shape[axis] for blob in parts), wholes[0].shape
    return Share(min(lengths), index_map=IndexMap(lengths, prod(shape[1:]) // shape[axis]))


_SHARES: dict[str, Callable[[Node], Shares]] = {
    **dict.fromkeys((*ELEMENTWISE, "PReLU", "BatchNorm"), _both),
    "Convolution": _of_filters, "Deconvolution": _of_filters, "LocalConvolution": _bands,
    "Pooling": _of_pooling, "LRN": _of_lrn, "LCN": _bands, "Scale": _of_norm, "Bias": _of_norm,
    "Concat": _of_concat_or_slice, "Slice": _of_concat_or_slice}
