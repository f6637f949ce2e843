"""A net's activations and their gradients in one arena, whose memory is reused once its contents are not needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.nets.arena import Lifetime, aligned, place
from scaffe.nets.fusion import fuse_layers
from scaffe.nets.layer_memory import kept_bytes, made_in_passes
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


@dataclass
class Part:
    """The data, or the diff, of a group of blobs that share memory.

    Attributes:
        blob: the blob of the group that owns the memory.
        steps: the steps of an iteration that read or write it, as ``net.steps`` numbers them.
    """

    blob: Blob
    steps: list[int] = field(default_factory=list)

    @property
    def lifetime(self) -> Lifetime:
        """The steps from the first use to the last."""
        return Lifetime(self.blob.n_elems * self.blob.dtype.itemsize, min(self.steps), max(self.steps))


def reuse_activations(net: Net, backward: bool) -> int:
    """Fuse the net's layers and move its activations into one arena, where they overwrite each other.

    Afterwards a blob's contents are valid only while the passes need them. The tops of sources, losses and outputs
    keep memory of their own, since they are filled or read outside of the passes.

    Args:
        net: a built net.
        backward: whether the net will run backward too.

    Returns:
        the arena's length in bytes.
    """
    fuse_layers(net, backward)
    return place_activations(net, backward)


def place_activations(net: Net, backward: bool) -> int:
    """As ``reuse_activations``, of a net after ``fuse_layers``."""
    data, diffs = data_parts(net, backward), diff_parts(net) if backward else []
    lifetimes = [part.lifetime for part in (*data, *diffs)]
    offsets, n_bytes = place(lifetimes)
    memory = net.context.kernels.zeros(n_bytes, np.dtype(np.uint8))
    views = [memory[start : start + x.n_bytes] for start, x in zip(offsets, lifetimes, strict=True)]
    for part, view in zip(data, views, strict=False):
        part.blob.bind_data(view.view(part.blob.dtype))
    for part, view in zip(diffs, views[len(data):], strict=True):
        part.blob.bind_diff(view.view(part.blob.dtype))
    if backward:
        pass_diffs(net)
    for node in net.nodes:
        node.seen_shapes = None  # layers that share memory do so anew
    net.reshape()
    return n_bytes


def arena_bytes(net: Net, backward: bool) -> int:
    """The length in bytes of the arena that ``reuse_activations`` makes.

    Args:
        net: a net after ``fuse_layers``.
        backward: whether it will run backward too.
    """
    found = [*data_parts(net, backward), *(diff_parts(net) if backward else ())]
    return place([part.lifetime for part in found])[1]


def training_bytes(net: Net, n_histories: int) -> int:
    """Bytes of device memory that training takes, without the scratch of layers' plans.

    The sum of: what ``bytes_beside_blobs`` says; the activations' arena and blobs outside it.

    Args:
        net: a net after ``fuse_layers``.
        n_histories: of the update rule.
    """
    return bytes_beside_blobs(net, n_histories) + _kept_length(net) + arena_bytes(net, True)


def testing_bytes(net: Net) -> int:
    """Bytes of device memory that a test net, after ``fuse_layers``, takes beside the training net's: its blobs,
    parameters that only it has, what its layers keep and make in passes, and two batches that are being prefetched."""
    own = sum(blob.n_elems * blob.dtype.itemsize for blob in net.own_blobs)
    return tested_blobs(net) + own + kept_bytes(net) + made_in_passes(net) + 2 * _batch_bytes(net)


def tested_blobs(net: Net) -> int:
    """Bytes of its blobs alone."""
    return _kept_length(net) + arena_bytes(net, False)


def _kept_length(net: Net) -> int:
    return sum(aligned(blob.n_elems * blob.dtype.itemsize) for blob in kept_blobs(net).values())


def bytes_beside_blobs(net: Net, n_histories: int) -> int:
    """Bytes of device memory of: parameters, gradients and histories; what layers keep for backward and make in
    passes; two batches that are being prefetched; the workspace of matrix products.

    Arguments as for ``training_bytes``.
    """
    from scaffe.layers.kernels.cuda.cublas import WORKSPACE_BYTES

    params = net.params.n_elems * net.params.dtype.itemsize * (2 + n_histories)
    if net.context.dtype != net.params.dtype:  # kernels read a copy
        params += net.params.n_elems * net.context.dtype.itemsize
    return params + 2 * _batch_bytes(net) + kept_bytes(net) + made_in_passes(net) + WORKSPACE_BYTES


def _batch_bytes(net: Net) -> int:
    """Of a batch on its way to the device; layers that make their own there have none."""
    return sum(getattr(node.layer, "batch_bytes", 0) for node in net.nodes)


def data_parts(net: Net, backward: bool) -> list[Part]:
    """The blobs' data that an arena may hold.

    Args:
        net: a net after ``fuse_layers``.
        backward: whether it will run backward too: then data live until the last backward that may read them.
    """
    owner, kept = memory_owners(net, "shares_data"), kept_blobs(net)
    parts: dict[int, Part] = {}
    for index, node in enumerate(net.nodes):
        steps = forward_steps(net, index) + (backward_steps(net, index) if backward and node.needs_backward else [])
        for blob in (*node.bottoms, *node.tops):
            root = owner[id(blob)]
            parts.setdefault(id(root), Part(root)).steps.extend(steps)
    kept_roots = {id(owner[key]) for key in kept}
    return [part for key, part in parts.items() if key not in kept_roots and part.blob.n_elems]


def diff_parts(net: Net) -> list[Part]:
    """The blobs' diffs that an arena may hold: those that some layer's backward writes. The others keep their own
    memory, which stays zero."""
    owner, kept = _diff_owners(net), kept_blobs(net)
    parts: dict[int, Part] = {}
    for index, node in enumerate(net.nodes):
        if node.needs_backward:
            for blob in (*node.bottoms, *node.tops):
                root = owner[id(blob)]
                parts.setdefault(id(root), Part(root)).steps.extend(backward_steps(net, index))
    written = {id(owner[id(blob)]) for blob in written_diffs(net.nodes)}
    return [part for key, part in parts.items() if key in written - kept.keys() and part.blob.n_elems]


def forward_steps(net: Net, index: int) -> list[int]:
    """The layer's own forward, and that of the layer it is fused to."""
    return [index, index - net.nodes[index].fused_offset]


def backward_steps(net: Net, index: int) -> list[int]:
    """The layer's own backward, and that of the last layer it is fused with, where a fused backward of all runs."""
    first = index - net.nodes[index].fused_offset
    head = net.nodes[first]
    last = first + head.layer.n_fused_back
    return [*net.steps.backward(index), *net.steps.backward(max(index, last))]


def backward_block(net: Net, index: int) -> range:
    """The layers that run backward in one pass with this one, in the step of the last of them."""
    first = index - net.nodes[index].fused_offset
    last = first + net.nodes[first].layer.n_fused_back
    return range(first, last + 1) if index <= last else range(index, index + 1)


def written_diffs(nodes: Iterable[Node]) -> list[Blob]:
    """Bottoms whose diff is written by their layer's backward."""
    return [blob for node in nodes if node.needs_backward and not node.layer.shares_diff
            for blob, wanted in zip(node.bottoms, node.propagate_down, strict=False) if wanted]


def memory_owners(net: Net, shares: str) -> dict[int, Blob]:
    """id of each blob → the blob that owns its memory: layers like Split give their tops the bottom's memory."""
    owner: dict[int, Blob] = {}
    for node in net.nodes:
        for top in node.tops:
            passed_on = getattr(node.layer, shares) and node.bottoms
            owner.setdefault(id(top), owner[id(node.bottoms[0])] if passed_on else top)
    return owner


def _diff_owners(net: Net) -> dict[int, Blob]:
    """As `memory_owners`; and a sum's bottoms, whose diffs are its top's, have the top's memory."""
    owner = memory_owners(net, "shares_diff")
    n_owned, kept = Counter(map(id, owner.values())), kept_blobs(net)
    users = Counter(id(blob) for node in net.nodes if not runs_fused(net, node) for blob in node.bottoms)
    on_host = {id(top) for node in net.nodes if node.layer.host_only for top in node.tops}  # a user's may write diffs
    for node in reversed(net.nodes):  # a top's diff may itself be passed on by a later sum
        if not (node.layer.passes_diff and node.needs_backward) or id(owner[id(node.tops[0])]) in kept:
            continue
        for blob, wanted in zip(node.bottoms, node.propagate_down, strict=False):
            is_alone = owner[id(blob)] is blob and n_owned[id(blob)] == users[id(blob)] == 1
            if wanted and is_alone and blob is not node.tops[0] and id(blob) not in kept.keys() | on_host:
                owner[id(blob)] = owner[id(node.tops[0])]
    return owner


def runs_fused(net: Net, node: Node) -> bool:
    """Whether an in-place layer's backward is part of the pass of the layer it is fused to, and so writes no diff."""
    head = net.nodes[net.nodes.index(node) - node.fused_offset]
    return 0 < node.fused_offset <= head.layer.n_fused_back


def pass_diffs(net: Net) -> None:
    """Let the bottoms of sums have their top's diff where nobody else writes it, so that backward copies nothing.

    For nets whose diffs nobody sets between layers. Which bottoms these are is in ``net.passed_diffs``, with the tops
    of sums that layers in front of them may write, in place.
    """
    owner = _diff_owners(net)
    for index, node in enumerate(net.nodes):
        if not (node.layer.passes_diff and node.needs_backward):
            continue
        top = node.tops[0]
        for blob in node.bottoms:
            if owner[id(blob)] is owner[id(top)] and blob is not top:
                blob.share_diff(owner[id(blob)])
                net.passed_diffs |= {id(blob): len(net.nodes), id(top): net.passed_diffs.get(id(top), index)}


def kept_blobs(net: Net) -> dict[int, Blob]:
    """The blobs that keep memory of their own, by id: tops of sources and losses, and the net's outputs."""
    tops = [top for node in net.nodes for top, weight in zip(node.tops, node.loss_weights, strict=False)
            if weight or node.is_source]
    return {id(blob): blob for blob in (*tops, *(net.blobs[name] for name in net.output_names))}
