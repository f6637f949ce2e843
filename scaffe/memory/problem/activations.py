"""Activations: how many of them backward needs, and all of them in one arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from scaffe.layers.activation.relu import ReLU
from scaffe.layers.base.blob import Blob
from scaffe.memory.problem.tensors import is_long
from scaffe.nets import blob_memory
from scaffe.nets.fusion import fuse_layers, join_averages, join_signs, join_sums, keep_bottoms
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node
from scaffe.nets.thinning import join_thinned

NEAR = 0.95  # of a limit: where a net needs more of it at least, it is made to need less


def reduce_saved_activations(net: Net, limit: int, least: Callable[[], int]) -> None:
    """Have layers save less for backward. In-place layers that would copy their bottom work out of place, and ReLUs
    save a sign mask. If that is not enough, backward of convolutions is divided, at the cost of another pass over the
    data of more ReLUs. ``least``: the least bytes in which the net can be trained, as it is when this is called."""
    keep_bottoms(net)
    use_sign_masks(net)
    if least() > NEAR * limit:
        minimize_saved_activations(net)


def minimize_saved_activations(net: Net) -> None:
    """Have layers save as little for backward as they can, whatever it costs."""
    keep_bottoms(net)
    divide_backward(net)
    use_sign_masks(net)


def divide_backward(net: Net, layers: Collection[int] | None = None) -> None:
    """Have layers compute their parameters' gradients first, in a step of its own. Their bottoms' data and diffs are
    then never needed at once. ``layers``: some of ``divisible``; None: all."""
    net.steps = replace(net.steps, divided=frozenset(divisible(net) if layers is None else layers))


def divisible(net: Net) -> list[int]:
    """The layers whose backward can be divided."""
    return [index for index, node in enumerate(net.nodes) if node.layer.divides and node.needs_backward
            and any(node.propagate_down) and any(node.layer.param_propagate_down) and not node.layer.n_fused_back]


def use_sign_masks(net: Net) -> list[Node]:
    """Have ReLUs save a bit of each element instead of the data ("Binarize" of Gist, Jain et al., ISCA 2018), if no
    other layer's backward reads the data, or does so in a step of its own, after which nobody needs them. Returns those
    that did not yet. ``net``: a built net, after ``fuse_layers`` if that is called at all."""
    owner = blob_memory.memory_owners(net, "shares_data")
    able = [node for node in net.nodes if _may_use_sign_mask(net, node)]
    needed = {id(owner[id(blob)]) for index, node in enumerate(net.nodes)
              if node not in able and index not in net.steps.divided for blob in _read(node)}
    masked = [node for node in able if isinstance(node.layer, ReLU) and not node.layer.uses_sign_mask
              and id(owner[id(node.bottoms[0])]) not in needed]
    set_sign_masks(net, masked, True)
    return masked


def set_sign_masks(net: Net, nodes: Sequence[Node], uses: bool) -> None:
    """Have ReLUs save a sign mask, or their data."""
    for node in nodes:
        if isinstance(node.layer, ReLU):
            node.layer.uses_sign_mask, node.layer.reads_bottoms = uses, not uses
            node.seen_shapes = None
    net.reshape()


def _may_use_sign_mask(net: Net, node: Node) -> bool:
    """Whether a layer is a ReLU that runs its own backward, with data long enough to be worth it."""
    if not isinstance(node.layer, ReLU) or node.layer.relu_slope is None or any(
            other.includes is node for other in net.nodes):
        return False
    head = net.nodes[net.nodes.index(node) - node.fused_offset]
    is_covered = 0 < node.fused_offset <= head.layer.n_fused_back
    return node.needs_backward and not is_covered and is_long(node.bottoms[0])


def _read(node: Node) -> list[Blob]:
    """The blobs whose data the layer's backward reads."""
    if not node.needs_backward:
        return []
    return [*(node.bottoms if node.layer.reads_bottoms else ()), *(node.tops if node.layer.reads_tops else ())]


def reuse_activations(net: Net, backward: bool) -> int:
    """Fuse the net's layers and move its activations into one arena, where they overwrite each other.

    Afterwards a blob's contents are valid only while the passes need them. Tops of sources, losses and outputs keep
    memory of their own, since they are filled or read outside of the passes. Returns the arena's length in bytes.
    """
    fuse_layers(net, backward)
    return place_activations(net, backward)


def _at_once(step: Callable[[], None]) -> None:
    step()


def place_activations(net: Net, backward: bool, choose: Callable[[Callable[[], None]], None] = _at_once) -> int:
    """As ``reuse_activations``, for a net after ``fuse_layers``. ``choose`` calls what it is given, which may choose
    among kernels by timing them."""
    if backward:
        join_averages(net.nodes)
        join_sums(net.nodes)
    data, diffs = data_parts(net, backward), diff_parts(net) if backward else []
    lifetimes = [part.lifetime for part in (*data, *diffs)]
    offsets, n_bytes = blob_memory.place(lifetimes)
    memory = net.context.kernels.zeros(n_bytes, np.dtype(np.uint8))
    views = [memory[start : start + x.n_bytes] for start, x in zip(offsets, lifetimes, strict=True)]
    for part, view in zip(data, views, strict=False):
        part.blob.bind_data(view.view(part.blob.dtype))
    for part, view in zip(diffs, views[len(data):], strict=True):
        part.blob.bind_diff(view.view(part.blob.dtype))
    if backward:
        pass_diffs(net)
        join_thinned(net.nodes)
        choose(lambda: join_signs(net.nodes))
    for node in net.nodes:
        node.seen_shapes = None  # layers that share memory do so anew
    net.reshape()
    return n_bytes


def arena_bytes(net: Net, backward: bool) -> int:
    """The length in bytes of the arena that ``reuse_activations`` makes of a net after ``fuse_layers``."""
    found = [*data_parts(net, backward), *(diff_parts(net) if backward else ())]
    return blob_memory.place([part.lifetime for part in found])[1]


def data_parts(net: Net, backward: bool) -> list[blob_memory.BlobMemory]:
    """The blobs' data that an arena may hold, of a net after ``fuse_layers``. With a backward, data are needed until
    the last backward that may read them."""
    owner, kept = blob_memory.memory_owners(net, "shares_data"), blob_memory.kept_blobs(net)
    parts: dict[int, blob_memory.BlobMemory] = {}
    for index, node in enumerate(net.nodes):
        steps = blob_memory.forward_steps(net, index)
        steps += blob_memory.backward_steps(net, index) if backward and node.needs_backward else []
        for blob in (*node.bottoms, *node.tops):
            root = owner[id(blob)]
            parts.setdefault(id(root), blob_memory.BlobMemory(root)).steps.extend(steps)
    kept_roots = {id(owner[key]) for key in kept}
    return [part for key, part in parts.items() if key not in kept_roots and part.blob.n_elems]


def diff_parts(net: Net) -> list[blob_memory.BlobMemory]:
    """The blobs' diffs that an arena may hold: those that some layer's backward writes. The others keep their own
    memory, which stays zero."""
    owner, kept = _diff_owners(net), blob_memory.kept_blobs(net)
    parts: dict[int, blob_memory.BlobMemory] = {}
    for index, node in enumerate(net.nodes):
        steps = blob_memory.backward_steps(net, index) if node.needs_backward else []
        for root in (owner[id(blob)] for blob in (*node.bottoms, *node.tops) if steps):
            parts.setdefault(id(root), blob_memory.BlobMemory(root)).steps.extend(steps)
    written = {id(owner[id(blob)]) for blob in blob_memory.written_diffs(net.nodes)}
    return [part for key, part in parts.items() if key in written - kept.keys() and part.blob.n_elems]


def _diff_owners(net: Net, in_splits: bool = False) -> dict[int, Blob]:
    """As ``memory_owners``, and bottoms of a sum, whose diffs are its top's, have the top's memory. ``in_splits``:
    whether Splits add to their first top's diff, too, which then has the bottom's memory."""
    owner = blob_memory.memory_owners(net, "shares_diff")
    users = Counter(id(blob) for node in net.nodes if not blob_memory.runs_fused(net, node) for blob in node.bottoms)
    kept = blob_memory.kept_blobs(net)
    able = {id(blob) for blob in blob_memory.written_diffs(net.nodes) if users[id(blob)] == 1}
    able -= {id(blob) for node in net.nodes if node.layer.host_only  # a user's may write diffs
             for blob in (*node.tops, *node.bottoms)} | kept.keys()
    for layer, giver, blob in blob_memory.diff_givers(net):
        if not (in_splits or net.nodes[layer].layer.passes_diff):
            continue
        n_owned = sum(other is blob for other in owner.values())
        if id(blob) in able and owner[id(blob)] is blob and n_owned == 1 and id(owner[id(giver)]) not in kept:
            owner[id(blob)] = owner[id(giver)]
    return owner


def pass_diffs(net: Net) -> None:
    """Have the bottoms of sums share their top's diff if nobody else writes it, so that backward copies nothing. For
    nets whose diffs nobody sets between layers."""
    note_passed_diffs(net)
    share_passed_diffs(net)


def note_passed_diffs(net: Net, in_splits: bool = False) -> None:
    """Note in ``net.passed_diffs`` which bottoms these are, and which tops of sums the layers in front of them may
    write, in place. ``in_splits``: as for ``_diff_owners``."""
    owner = _diff_owners(net, in_splits)
    given = [each for each in blob_memory.diff_givers(net) if owner[id(each.blob)] is owner[id(each.giver)]]
    net.passed_diffs |= {id(each.blob): len(net.nodes) for each in given}
    for each in reversed(given):
        if net.nodes[each.layer].layer.passes_diff:
            net.passed_diffs.setdefault(id(each.giver), each.layer)


def share_passed_diffs(net: Net) -> None:
    """Have those blobs use the memory of the others', which is bound."""
    for _, giver, blob in blob_memory.passed_diffs(net):
        blob.share_diff(giver)
