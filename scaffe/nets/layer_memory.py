"""Memory that layers take beside their tops: copies, pooling positions and random masks that they keep for backward,
workspace, and what they make in passes."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from scaffe.layers.activation.relu import ReLU
from scaffe.layers.base.blob import Blob
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node

MOST_UNFOLDED_BYTES = 256 << 20  # of images that one convolution without cuDNN unfolds at once


def _pooling(node: Node) -> int:
    from scaffe.layers.kernels.cuda.pooling_lrn import MOST_SMALL

    p, n_elems = node.param.pooling_param, node.tops[0].n_elems
    taps = node.bottoms[0].count(2) if p.global_pooling else max(p.kernel_size, p.kernel_h) * max(
        p.kernel_size, p.kernel_w)
    places = n_elems * (1 if taps <= MOST_SMALL else 4)
    return {p.MAX: places, p.AVE: 0, p.STOCHASTIC: places + 4 * n_elems}[p.pool]


def _signs(node: Node) -> int:
    """Of a fused layer; those of others ``_held`` finds."""
    return node.layer.signs_bytes if isinstance(node.layer, ReLU) and node.fused_offset else 0


KEPT: dict[str, Callable[[Node], int]] = {
    "Pooling": _pooling, "Dropout": lambda node: node.tops[0].n_elems, "ReLU": _signs}


def kept_bytes(net: Net) -> int:
    """Bytes that all layers together keep from forward to backward."""
    return sum(_held(node) + KEPT.get(node.param.type, _nothing)(node) for node in net.nodes)


def _nothing(node: Node) -> int:
    return 0


def _held(node: Node) -> int:
    """Bytes of the arrays and blobs among the layer's attributes; 0 for a layer that is fused to another."""
    if node.fused_offset:
        return 0
    shown = {id(blob) for blob in (*node.bottoms, *node.tops, *node.layer.blobs)}
    held = {id(value): _n_bytes(value) for value in vars(node.layer).values() if id(value) not in shown}
    return sum(held.values())


def _n_bytes(value: Any) -> int:
    if isinstance(value, Blob):
        return value.n_elems * value.dtype.itemsize
    return getattr(value, "nbytes", 0)


def unfolded_bytes(net: Net) -> int:
    """Bytes of workspace that convolutions need without cuDNN, for the net's largest: images unfolded (im2col), the
    weights in another layout, and their gradient."""
    return max((_unfolded(node) for node in net.nodes if node.param.type in ("Convolution", "Deconvolution")),
               default=0)


def _unfolded(node: Node) -> int:
    (x, y), weights = (node.bottoms[0], node.tops[0]), node.layer.blobs[0]
    if node.param.type == "Deconvolution":
        x, y = y, x
    itemsize = x.dtype.itemsize
    an_image = y.count(2) * x.shape[1] * weights.count(2) * itemsize
    n_at_once = max(1, min(x.shape[0], MOST_UNFOLDED_BYTES // max(an_image, 1)))
    return n_at_once * an_image + weights.n_elems * (itemsize + weights.dtype.itemsize)


def made_in_passes(net: Net) -> int:
    """Bytes of the arrays that layers make in passes: those that last, and the others of the layer that has most."""
    persistent_temporaries, others = 0.0, [0.0]
    for layer, n_elems in ((node.layer, _longest(node)) for node in net.nodes):
        persistent_temporaries += layer.persistent_temporaries * n_elems
        others.append((layer.temporaries - layer.persistent_temporaries) * n_elems)
    return ceil(persistent_temporaries + max(others)) * net.params.dtype.itemsize


def _longest(node: Node) -> int:
    """Elements of a layer's longest blob."""
    return max((blob.n_elems for blob in (*node.bottoms, *node.tops)), default=0)
