"""Weights the losses of ranks that have different numbers of a batch's images, so that their mean is the batch's loss.

A mean over images is weighted by its number of images: own images · ranks / all images. A sum over images
(``normalization: NONE``, or a top with a number for each image) needs no weight: the mean over P ranks is 1/P of the
whole sum. Which images a layer sees follows from the data layers above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scaffe.layers.base.axes import NONE, PRE_FIXED, normalization
from scaffe.layers.base.bases import LossLayer
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.nets.net import Net
from scaffe.nets.net_layer import LossShare, LossShares, Node

MEAN = 4  # ReductionParameter.ReductionOp

Lengths = Mapping[int, Sequence[tuple[int, int]]]
"""By a layer's index, for each of its tops: the length of the first axis (0 without axes), and the elements."""


def lengths_of(net: Net) -> Lengths:
    """The lengths that ranks must know of one another's nets: of the tops of data layers and losses, and of outputs."""
    outputs = set(net.output_names)
    return {index: [(top.shape[0] if top.shape else 0, top.n_elems) for top in node.tops]
            for index, node in enumerate(net.nodes)
            if node.is_source or any(node.loss_weights) or not outputs.isdisjoint(node.top_names)}


def share_losses(net: Net, rank: int, everyone: Sequence[Lengths]) -> None:
    """Weight a training net's losses by their images, if ranks have different numbers of images. ``everyone``:
    ``lengths_of`` each rank's net."""
    images = {index: found for index, node in enumerate(net.nodes) if node.is_source
              and len(set(found := _images(index, everyone))) > 1}
    if not images:
        return
    outputs: dict[str, tuple[float, int]] = {}
    above: dict[int, frozenset[int]] = {}  # by a blob's id, the data layers from which it comes
    for index, node in enumerate(net.nodes):
        sources = frozenset({index} & images.keys()).union(*(above.get(id(blob), ()) for blob in node.bottoms))
        above |= dict.fromkeys(map(id, node.tops), sources)
        if index in everyone[rank]:
            has_images = [len({each[index][top][0] for each in everyone}) > 1 for top in range(len(node.tops))]
            node.share = _share(node, _weight([images[source] for source in sources], rank), has_images)
            node.set_weights()
            outputs |= {name: (1.0 if has_images[top] else node.share.value,
                               min(each[index][top][1] for each in everyone))
                        for top, name in enumerate(node.top_names) if name in net.output_names}
    net.shares = LossShares(_weight([next(iter(images.values()))], rank), outputs)


def _images(index: int, everyone: Sequence[Lengths]) -> list[int]:
    """A data layer's images on each rank: the length of its first top that has an axis."""
    return [next((length for length, _ in each[index] if length), 0) for each in everyone]


def _weight(counts: Sequence[Sequence[int]], rank: int) -> float:
    """A rank's images as a multiple of the mean over ranks; 1 if the data layers above have as many on all ranks."""
    total = sum(map(sum, counts))
    return sum(each[rank] for each in counts) * len(counts[0]) / total if total else 1.0


def _share(node: Node, weight: float, has_images: Sequence[bool]) -> LossShare:
    """The factors on a layer's loss. ``has_images``: for each top, whether it has elements for each image."""
    weighted = [has for has, loss_weight in zip(has_images, node.loss_weights, strict=False) if loss_weight]
    is_sum = any(weighted or has_images) or _sums(node)
    sums_gradients = is_sum or getattr(_kind(node), "sums_gradients", False)
    return LossShare(1.0 if is_sum else weight, 1.0 if sums_gradients else weight)


def _sums(node: Node) -> bool:
    param = node.param
    if param.type == "Reduction":
        return bool(param.reduction_param.operation != MEAN)
    kind = _kind(node)
    return issubclass(kind, LossLayer) and kind.is_normalized and normalization(param.loss_param) in (NONE, PRE_FIXED)


def _kind(node: Node) -> type[Layer]:
    """The class of a layer's type, even if another class stands for it in this net."""
    return layer_types.get(node.param.type) if node.param.type in layer_types.names() else type(node.layer)
