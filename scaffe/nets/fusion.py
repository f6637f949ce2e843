"""Fuses layers that one pass over memory can compute: convolution and ReLU; batch norm, scale, a sum and ReLU.

A fused layer keeps its place in the net, its parameters and its hooks. If the blob between two fused layers may be read
(``Net.unfused``, ``after_forward`` hooks, a range of layers that ends there), each layer runs by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.normalization.batch_norm import BatchNorm
from scaffe.layers.reshaping.copies import Split
from scaffe.layers.vision.convolution import Convolution
from scaffe.layers.vision.pooling import Pooling
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


def fuse_in_place(nodes: Sequence[Node]) -> None:
    """Fuse in-place layers to the layers before them. All blobs still have Caffe's values."""
    for index, node in enumerate(nodes):
        if not node.fused_offset:
            _fuse(nodes, index, lambda node, following: _can_fuse(node, following)
                  and following.tops[0] is node.tops[0])


def fuse_layers(net: Net, backward: bool) -> None:
    """Fuse as many layers as possible, also ones that are not in place; for nets whose inner blobs nobody reads.

    Fused layers then share one top, that of the last of them. An in-place layer that would copy its bottom for backward
    becomes out of place instead. ``backward``: whether the net will run backward too; if not, layers keep nothing for
    it."""
    for index, node in enumerate(net.nodes):
        node.layer.forward_only = not backward
        node.seen_shapes = None
        if not node.fused_offset:
            _fuse(net.nodes, index, _can_fuse)
        if backward and node.layer.keeps_bottom and node.tops[0] is node.bottoms[0]:
            _move_bottom(net, index)
    if backward:
        join_backward(net.nodes)
    net.reshape()


def keep_bottoms(net: Net) -> None:
    """Let in-place layers that would copy their bottom for backward work out of place, where possible."""
    for index, node in enumerate(net.nodes):
        if node.layer.keeps_bottom and node.tops[0] is node.bottoms[0] and not node.layer.forward_only:
            _move_bottom(net, index)
            node.seen_shapes = None
    net.reshape()


def unfuse_backward(nodes: Sequence[Node]) -> None:
    """Let each layer run its own backward after a fused forward; all diffs then have Caffe's values."""
    for node in nodes:
        if node.ran_fused and node.layer.n_fused_back:
            node.layer.unfuse()
            node.ran_fused = False


def join_backward(nodes: Sequence[Node]) -> None:
    """Let layers include the backward of the in-place ReLU before them, where they can; for nets whose inner diffs
    nobody sets or reads.
    """
    for node in nodes:
        relu = _relu_ahead(nodes, node) if node.needs_backward else None
        if relu is not None and node.layer.include_relu(not _is_summed(nodes, node)):
            node.includes, relu.layer.reads_bottoms = relu, False


def join_averages(nodes: Sequence[Node]) -> None:
    """As ``join_backward``, for average poolings, which then read the ReLU's data: for nets in which memory is not so
    scarce that sign masks would take their place."""
    for node, layer in ((node, node.layer) for node in nodes if node.needs_backward and node.includes is None):
        relu = _relu_ahead(nodes, node) if isinstance(layer, Pooling) else None
        if isinstance(layer, Pooling) and relu is not None and layer.mask_average():
            node.includes, relu.layer.reads_bottoms = relu, False


def join_sums(nodes: Sequence[Node]) -> None:
    """Let convolutions, whose backward is the last of those that read the tops of a Split, write its bottom's gradient,
    where they can; for nets whose inner diffs nobody sets or reads, and whose diffs do not move. To be called once
    layers are joined otherwise."""
    for node in nodes:
        if isinstance(node.layer, Split) and node.needs_backward and not node.layer.is_summed:
            _join_sum(nodes, node, node.layer)


def _join_sum(nodes: Sequence[Node], split: Node, layer: Split) -> None:
    readers = [[other for other in nodes if _holds([*other.bottoms, *other.tops], top) and other is not split]
               for top in split.tops]
    if len(split.tops) < 2 or any(len(found) != 1 or not _gives_gradient(found[0], top)
                                  for found, top in zip(readers, split.tops, strict=True)):
        return
    last = min((found[0] for found in readers), key=nodes.index)
    own = last.bottoms[0]
    if len(last.bottoms) > 1 or not isinstance(last.layer, Convolution):
        return
    bottom, others = split.bottoms[0], [top for top in split.tops if top is not own]
    if last.layer.include_sum(bottom, others, bottom if layer.includes_relu else None):
        layer.is_summed, last.bottoms = True, [bottom]


def join_signs(nodes: Sequence[Node]) -> None:
    """Let normalisations save the signs of what they write, where a convolution's backward then reads no data; for nets
    after ``join_sums``, whose sums' graphs are built."""
    for layer in (node.layer for node in nodes):
        if isinstance(layer, Convolution):
            layer.prepare_sum()
            norm = None if layer.summed_signs is None else norm_in_front(nodes, layer.summed_signs)
            if norm is not None and layer.takes_sign_bits():
                norm.saves_signs = True


def norm_in_front(nodes: Sequence[Node], blob: Blob) -> BatchNorm | None:
    """The layer whose fused pass writes a blob, if that is a normalisation in training."""
    writer = [node for node in nodes if _holds(node.tops, blob)][-1]
    head = nodes[nodes.index(writer) - writer.fused_offset].layer
    return head if isinstance(head, BatchNorm) and head.writes_params else None


def _gives_gradient(node: Node, bottom: Blob) -> bool:
    """Whether a layer's backward writes the gradient of one of its bottoms."""
    wanted = [want for blob, want in zip(node.bottoms, node.propagate_down, strict=True) if blob is bottom]
    return node.needs_backward and wanted == [True]


def _relu_ahead(nodes: Sequence[Node], node: Node) -> Node | None:
    """The layer that writes another's bottom, if it is an in-place ReLU of slope 0 that runs its own backward."""
    writers = [other for other in nodes for bottom in node.bottoms[:1] if _holds(other.tops, bottom)]
    if not writers or getattr(writers[-1].layer, "relu_slope", None) != 0 or not writers[-1].needs_backward:
        return None
    relu, head = writers[-1], nodes[nodes.index(writers[-1]) - writers[-1].fused_offset]
    return relu if relu.tops[0] is relu.bottoms[0] and not 0 < relu.fused_offset <= head.layer.n_fused_back else None


def _is_summed(nodes: Sequence[Node], node: Node) -> bool:
    """Whether a layer's top may share its gradient's memory with other bottoms of a sum."""
    found = [*node.tops]
    for other in nodes:
        if any(_holds(found, bottom) for bottom in other.bottoms):
            if other.layer.passes_diff:
                return True
            found += other.tops if other.layer.shares_diff else ()
    return False


def _fuse(nodes: Sequence[Node], index: int, fits: Callable[[Node, Node], bool]) -> None:
    node = nodes[index]
    for place in range(index + node.n_fused + 1, len(nodes)):
        following = nodes[place]
        if not fits(nodes[place - 1], following) or not node.layer.fuse(following.layer):
            return
        between, top = nodes[place - 1].tops[0], following.tops[0]
        for other in nodes[index:place]:  # out of place no longer
            other.tops[0] = top
        for other in nodes[index + 1:place + 1]:
            other.bottoms = _exchanged(other.bottoms, between, top)
        for unfused in nodes[place + 1:place + 1 + following.n_fused]:
            unfused.fused_offset = 0  # offered to this layer next
        following.n_fused, following.fused_offset = 0, place - index
        node.n_fused += 1


def _can_fuse(node: Node, following: Node) -> bool:
    """Whether one bottom of the following layer is this layer's only top, of the same dtype, and neither has a loss."""
    alone = len(node.tops) == len(following.tops) == 1 and not any(node.loss_weights)
    return alone and _holds(following.bottoms, node.tops[0]) and following.tops[0].dtype == node.tops[0].dtype


def _move_bottom(net: Net, index: int) -> None:
    """Give the bottom of an in-place layer memory of its own, unless a data layer fills it."""
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
