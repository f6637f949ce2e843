"""What the planner knows of a net: plain numbers of each layer, taken from a net that is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from scaffe.errors import UserError
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node
from scaffe.nets.summary import MULTIPLY_ADDS
from scaffe.training.partition.planner.image_shares import (
    ELEMENTWISE,
    Share,
    image_shares,
    index_map_share,
    joined_axis,
)
from scaffe.training.partition.sharding import BY_BANDS, BY_COLUMNS, CLASSES, INPUTS, ONE_RANK, OUTPUTS, REPLICATED

AUTO = "AUTO"
PLACEABLE = ("InnerProduct", "Convolution", "Deconvolution", "LocalConvolution", "Embed", "Softmax", "Split", "LCN",
             "LRN", "ReLU", "Sigmoid", "TanH", "ELU", "AbsVal", "BNLL", "Power", "Exp", "Log", "Eltwise")
"""Types that can be placed on one rank: they draw no numbers."""
WORDS = {BY_BANDS: "rows of pixels"}
"""Kind → what ranks have some of, where its name does not say it."""


@dataclass(frozen=True)
class LayerShape:
    """One layer of a net, as the planner sees it.

    Attributes:
        name, type, bottoms, tops: as in the prototxt, Split layers included: a blob has one reader.
        shardings: the ways in which it can be shared, best known first: ``REPLICATED`` always.
        widths: elements of each bottom an image.
        n_outputs: elements of the first top an image.
        multiply_adds: of one image, forward and backward.
        wants_gradient: for each bottom, whether backward writes its gradient.
        pinned: the kind that the prototxt asks for; "" for the planner's choice.
        pinned_partitions: how many ranks the prototxt asks for; 0 for any.
        shares: the kinds in which images are cut → what they need.
        seconds: that an image takes a rank, forward and backward, where that was measured; 0: go by the multiply-adds.
    """

    name: str
    type: str
    bottoms: tuple[str, ...] = ()
    tops: tuple[str, ...] = ()
    shardings: tuple[str, ...] = (REPLICATED,)
    widths: tuple[int, ...] = ()
    n_parameters: int = 0
    n_outputs: int = 0
    multiply_adds: float = 0.0
    wants_gradient: tuple[bool, ...] = ()
    pinned: str = ""
    pinned_partitions: int = 0
    shares: Mapping[str, Share] = field(default_factory=dict)
    seconds: float = 0.0

    def allowed(self, n_partitions: int) -> tuple[str, ...]:
        """The kinds that it may have among so many ranks.
        Raises UserError if it is pinned to what it cannot do, or to another number of ranks."""
        if n_partitions == 1:
            return (REPLICATED,)
        if self.pinned_partitions not in (0, n_partitions):
            raise UserError(f"layer {self.name!r} ({self.type}): parallel_param wants {self.pinned_partitions} "
                            f"partitions, a replica has {n_partitions}")
        if not self.pinned:
            return self._possible(n_partitions)
        if self.pinned not in self.shardings:
            raise UserError(f"layer {self.name!r} ({self.type}): parallel_param pins it to {self.pinned.upper()}; it "
                            f"can be {', '.join(kind.upper() for kind in self.shardings)}")
        if n_partitions > self.most_partitions(self.pinned):
            raise UserError(f"layer {self.name!r} ({self.type}): {self.most_partitions(self.pinned)} "
                            f"{WORDS.get(self.pinned, self.pinned)} cannot be split into {n_partitions} partitions")
        if not self.fits(self.pinned, n_partitions):
            raise UserError(f"layer {self.name!r} ({self.type}): its groups of channels cannot be shared out to "
                            f"{n_partitions} partitions")
        return (self.pinned,)

    def _possible(self, n_partitions: int) -> tuple[str, ...]:
        """The kinds that so many ranks can have; parameters are placed on one rank only where nothing splits them."""
        found = tuple(kind for kind in self.shardings if n_partitions <= self.most_partitions(kind)
                      and self.fits(kind, n_partitions))
        splits = self.n_parameters and len({*found} - {REPLICATED, ONE_RANK}) > 0
        return tuple(kind for kind in found if kind != ONE_RANK or not splits)

    def fits(self, kind: str, n_partitions: int) -> bool:
        """Whether so many ranks, not above the most, can share it in a way."""
        return kind not in self.shares or self.shares[kind].fits(n_partitions)

    def most_partitions(self, kind: str) -> int:
        """The most ranks that can share it in a way: each has a column at least."""
        if kind in (REPLICATED, ONE_RANK):
            return 1 << 31
        if kind in self.shares:
            return self.shares[kind].length
        if kind == OUTPUTS:
            return self.n_outputs
        return min(self.widths[0], self.n_outputs) if kind == BY_COLUMNS else self.widths[0]


def shapes_of(net: Net) -> list[LayerShape]:
    """Every layer of a built net, whose sources give batches of at least one image."""
    return [_shape_of(node) for node in net.nodes]


def images_of(net: Net) -> int:
    """Images of one batch: the first axis of the first source's first top; 1 without any."""
    return next((top.shape[0] for node in net.nodes if node.is_source for top in node.tops if top.shape), 1)


def _shape_of(node: Node) -> LayerShape:
    n_images = max(node.bottoms[0].shape[0] if node.bottoms and node.bottoms[0].shape else 1, 1)
    count = MULTIPLY_ADDS.get(node.param.type)
    passes = 1 + any(node.layer.param_propagate_down) + any(node.propagate_down)
    pin = node.param.parallel_param
    pinned = type(pin).Split.Name(pin.split)
    shares = image_shares(node) | _matrix_index_map(node)
    return LayerShape(
        node.name, node.param.type, tuple(node.bottom_names), tuple(node.top_names),
        (*_shardings_of(node), *shares, *_single_rank(node)),
        tuple(bottom.n_elems // n_images for bottom in node.bottoms),
        sum(blob.n_elems for i, blob in enumerate(node.layer.blobs) if i not in node.shared),
        node.tops[0].n_elems // n_images if node.tops else 0,
        count(node) * passes / n_images if count else 0.0,
        tuple(node.propagate_down), "" if pinned == AUTO else pinned.lower(), pin.partitions,
        shares)


def _shardings_of(node: Node) -> tuple[str, ...]:
    if node.param.type == "InnerProduct" and _is_whole_rows(node):
        return REPLICATED, OUTPUTS, INPUTS
    if node.param.type in ELEMENTWISE and all(_is_matrix(blob) for blob in (*node.bottoms, *node.tops)):
        return REPLICATED, BY_COLUMNS
    if splits_classes(node.param) and _is_matrix(node.bottoms[0]):
        return REPLICATED, CLASSES
    return (REPLICATED,)


def _matrix_index_map(node: Node) -> dict[str, Share]:
    """Of Concat and Slice of (images, n) along n."""
    is_concat_or_slice = node.param.type in ("Concat", "Slice") and all(map(_is_matrix, (*node.bottoms, *node.tops)))
    return {BY_COLUMNS: index_map_share(node, 1)} if is_concat_or_slice and joined_axis(node.param, 2) == 1 else {}


def _single_rank(node: Node) -> tuple[str, ...]:
    """Whether the layer can be placed on one rank: all its blobs are of the batch's images, its parameters its own."""
    blobs = (*node.bottoms, *node.tops)
    alike = len({blob.shape[0] for blob in blobs if blob.ndim}) == 1 and all(blob.ndim for blob in blobs)
    can = node.param.type in PLACEABLE and alike and not any(spec.name for spec in node.param.param)
    return (ONE_RANK,) if can else ()


def _is_matrix(blob: Any) -> bool:
    return bool(blob.ndim == 2 and prod(blob.shape) > 0)


def _is_whole_rows(node: Node) -> bool:
    """Whether an InnerProduct takes an image's elements together, and shares its parameters with no other layer."""
    axis = node.bottoms[0].axis(node.param.inner_product_param.axis)
    return axis == 1 and _is_matrix(node.tops[0]) and not any(spec.name for spec in node.param.param)


def splits_classes(layer: Any) -> bool:
    """Whether ranks can have some classes each of a layer's (images, classes): a loss without weights, or accuracy."""
    if layer.type == "Accuracy":
        return layer.accuracy_param.axis in (1, -1)
    weighs = layer.loss_param.weight_by_label_freqs
    return (layer.type == "SoftmaxWithLoss" and layer.softmax_param.axis in (1, -1) and len(layer.top) <= 1
            and not weighs)
