"""Keeps gradients that are 0 but at every other place as those places alone.

Where all who read a Split's tops are convolutions of 1x1 with one stride, as at the start of ResNet's stages, its
bottom's gradient is 0 at three of four places. These are then neither written nor read: the convolutions write what is
left, and of those who read it the normalisation in front of the sum takes it as it is, and so does the convolution that
adds it at the Split of the shortcut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scaffe.layers.base.axes import same_memory
from scaffe.layers.base.blob import Blob
from scaffe.layers.normalization.batch_norm import BatchNorm
from scaffe.layers.reshaping.copies import Split
from scaffe.layers.vision.convolution import Convolution
from scaffe.nets.fusion import norm_in_front
from scaffe.nets.net_layer import Node


class _Readers(NamedTuple):
    """Who reads a Split's gradient: the normalisation, and the convolution that adds it to its own as ``addend``'s."""

    norm: BatchNorm
    convolution: Convolution
    addend: Blob


def join_thinned(nodes: Sequence[Node]) -> None:
    """Thin the gradients of Splits' bottoms where all who write and read them can; for nets after ``join_sums`` in
    which bottoms of sums share their tops' diffs (``pass_diffs``)."""
    for place, node in enumerate(nodes):
        if isinstance(node.layer, Split) and node.layer.is_summed:
            shown = [node.bottoms[0], *node.tops]
            behind = [other.layer for other in nodes[place + 1:] if any(_holds(shown, b) for b in other.bottoms)]
            writers = [layer for layer in behind if isinstance(layer, Convolution)]
            if len(writers) == len(behind):
                _thin(writers, _readers(nodes, place))


def _thin(writers: Sequence[Convolution], readers: _Readers | None) -> None:
    """Thin the gradient that these layers write, if all leave out the same places of their bottoms."""
    thinned = writers[0].spec.thinned
    if thinned is None or readers is None or any(layer.spec.thinned != thinned for layer in writers):
        return
    if readers.convolution.add_thinned(readers.addend, thinned):
        readers.norm.thinned = thinned
        for layer in writers:
            layer.thin_gradient()


def _readers(nodes: Sequence[Node], place: int) -> _Readers | None:
    """None where somebody else reads the gradient of that Split's bottom, or one of them must have it whole."""
    split, blob = nodes[place], nodes[place].bottoms[0]
    makers = [node for node in nodes[:place] if _holds(node.tops, blob)]
    norm, sums = norm_in_front(nodes, blob), [node for node in makers if node.layer.passes_diff]
    covered = [node for node in makers if node.fused_offset <= makers[0].layer.n_fused_back or node is split.includes]
    if norm is None or not norm.takes_thinned(blob) or len(sums) != 1 or len(covered) + 1 < len(makers):
        return None
    addend, *more = [bottom for bottom in sums[0].bottoms if bottom is not blob]
    adders = [node.layer for node in nodes if isinstance(node.layer, Convolution) and node.layer.adds(addend)]
    if more or len(adders) != 1 or not same_memory(addend.diff_flat, blob.diff_flat):
        return None
    return _Readers(norm, adders[0], addend)


def _holds(blobs: Sequence[Blob], blob: Blob) -> bool:
    return any(other is blob for other in blobs)
