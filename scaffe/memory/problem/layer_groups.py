"""Groups of layers whose parameters a memory plan treats together, and the chunks in which they are updated."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from scaffe.mapped_memory import PAGE_BYTES, page_of, rounded
from scaffe.memory.problem.costs import estimated_seconds
from scaffe.nets.flat_params import ALIGN_ELEMS
from scaffe.nets.net import Net

LEAST_BYTES = 1 << 20  # of a group's parameters: those of shorter groups are never offloaded


class LayerGroup(Protocol):
    """Layers whose parameters are adjacent in the flat buffers and are updated together: one layer, or a bucket."""

    @property
    def first_layer(self) -> int:
        """Index of the first layer, whose backward is the last to run."""

    @property
    def place(self) -> slice:
        """Their interval of the flat buffers, in elements."""


G = TypeVar("G", bound=LayerGroup)


class OneLayer(NamedTuple):
    """The parameters of one layer; see LayerGroup."""

    first_layer: int
    place: slice


def single_layers(net: Net) -> list[OneLayer]:
    """A group for each layer that has parameters."""
    params, found = net.params, dict[int, OneLayer]()
    ends = [*(place.start for place in params.slices[1:]), params.n_elems]
    for param, place, end in zip(params.params, params.slices, ends, strict=True):
        first = found.get(param.layer_index, OneLayer(param.layer_index, place)).place.start
        found[param.layer_index] = OneLayer(param.layer_index, slice(first, end))
    return list(found.values())


def layers_of(net: Net, group: LayerGroup) -> list[int]:
    """The layers, ascending, that have parameters in a group."""
    return sorted({param.layer_index for param, place in zip(net.params.params, net.params.slices, strict=True)
                   if group.place.start <= place.start < group.place.stop})


def large_groups(net: Net, groups: Iterable[G]) -> list[G]:
    """The groups with at least LEAST_BYTES of parameters which are all trained and not shared with other layers."""
    stay = {param.layer_index for param in net.params.params if not param.lr_mult}
    return [group for group in long_groups(net, groups)
            if all(layer not in stay and net.nodes[layer].needs_backward for layer in layers_of(net, group))]


def long_groups(net: Net, groups: Iterable[G]) -> list[G]:
    """The groups with at least LEAST_BYTES of parameters which are not shared with other layers."""
    shared = {param.layer_index for param in net.params.params if param.sharers}
    return [group for group in groups if bytes_of(net, group) >= LEAST_BYTES
            and shared.isdisjoint(layers_of(net, group))]


def bytes_of(net: Net, group: LayerGroup) -> int:
    """Bytes of a group's parameters."""
    return int(group.place.stop - group.place.start) * net.params.dtype.itemsize


def bytes_in_pages(net: Net, group: LayerGroup) -> int:
    """The same in whole pages."""
    return rounded(bytes_of(net, group))


CHUNK_BYTES = 16 << 20  # of parameters that are updated at once, where their layer has no blocks of rows


def compute_by_rows(net: Net, groups: Iterable[LayerGroup], spreads: bool = True) -> None:
    """Have gradients of groups computed, and their parameters updated, block by block of rows, as far as their layers
    can. All blocks use the same memory, so that no gradient is ever there whole.

    Args:
        groups: the groups that are updated within backward, and whose gradients nobody else reads.
        spreads: whether blocks are spread evenly over backward from the first of these layers on, each behind some
            layer, so that there is time for their moves. If not, all follow their own layer's backward.
    """
    n_blocks = {group.first_layer: len(net.nodes[group.first_layer].layer.param_rows) for group in groups
                if len(layers_of(net, group)) == 1}
    n_blocks = {layer: n for layer, n in n_blocks.items() if n}
    if not spreads:
        net.steps = replace(net.steps, behind={layer: (layer,) * n for layer, n in n_blocks.items()})
        return
    net.steps = replace(net.steps, behind={})
    seconds = estimated_seconds(net)
    spent = {layer: sum(seconds[step] for step in net.steps.backward(layer)) for layer in range(net.steps.n_layers)}
    net.steps = replace(net.steps, behind=spread(n_blocks, spent))


def spread(n_blocks: Mapping[int, int], seconds: Mapping[int, float]) -> dict[int, tuple[int, ...]]:
    """Behind which layer's backward each block is computed, for ``Steps.behind``: the one nearest to when the block is
    due, by each layer's number of blocks and its seconds of backward."""
    owners = sorted(n_blocks, reverse=True)
    left = [layer for layer in sorted(seconds, reverse=True) if owners and layer < owners[0]]
    whole, number, found = sum(seconds[layer] for layer in left), 0, dict[int, tuple[int, ...]]()
    for owner in owners:
        places = []
        for _ in range(n_blocks[owner]):
            due, now, behind = number / sum(n_blocks.values()) * whole, 0.0, owners[0]
            for layer in left:
                if now + seconds[layer] / 2 > due and behind <= owner:
                    break
                now, behind = now + seconds[layer], layer
            places.append(behind)
            number += 1
        found[owner] = tuple(places)
    return found


def chunks(net: Net, group: LayerGroup) -> list[slice]:
    """The intervals of a group, in elements of the flat buffers, that are updated one after another, so that only the
    history of one is in memory: blocks of rows if its gradients are computed so, else at most CHUNK_BYTES each."""
    place = group.place
    if group.first_layer in net.steps.behind:
        layer = net.nodes[group.first_layer].layer
        starts = [place.start + rows.start * layer.blobs[0].count(1) for rows in layer.param_rows]
        return [slice(start, stop) for start, stop in pairwise([*starts, place.stop])]
    n_chunks = max(1, bytes_of(net, group) // CHUNK_BYTES)
    step = -(-(place.stop - place.start) // n_chunks // ALIGN_ELEMS) * ALIGN_ELEMS
    return [slice(start, min(start + step, place.stop)) for start in range(place.start, place.stop, step)]


def count_updates(net: Net, n_chunks: Mapping[int, int]) -> None:
    """Give groups steps of their updates behind their backward: one for each chunk, and a last one in which the other
    ranks get the parameters. Blocks of rows have steps already. ``n_chunks``: by a group's first layer."""
    net.steps = replace(net.steps, n_updates={layer: n + 1 for layer, n in n_chunks.items()
                                              if layer not in net.steps.behind})


def update_steps(net: Net, group: LayerGroup) -> Sequence[int]:
    """The steps in which a group's chunks are updated; another may follow."""
    return net.steps.rows(group.first_layer) or net.steps.updates(group.first_layer)


def blocks_place(net: Net, groups: Iterable[LayerGroup]) -> slice:
    """Where in the flat gradients those of blocks of rows are computed, one after another: an interval in elements that
    begins with a page, or with a huge page if the blocks are long."""
    n_elems, group = max(((max(chunk.stop - chunk.start for chunk in chunks(net, group)), group) for group in groups),
                       key=lambda each: (each[0], each[1].place.start))
    item = net.params.dtype.itemsize
    page = page_of(n_elems * item) // item
    start, length = -(-group.place.start // page) * page, rounded(n_elems * item) // item
    return slice(start, start + length) if start + length <= group.place.stop else slice(
        group.place.start, group.place.start + n_elems)


def pages_of_blocks(edges: Sequence[int]) -> list[tuple[slice, range]]:
    """Divide memory of blocks that lie one behind the other into arrays of whole pages, huge ones if the blocks are
    long: each block's own pages, and between two blocks the page of which both have a part. Returns intervals of
    addresses, each with the blocks that have a part of it.

    Args:
        edges: addresses, ascending; a block lies between two of them.
    """
    page = page_of(max(stop - start for start, stop in pairwise(edges)))
    first, last = -(-edges[0] // PAGE_BYTES) * PAGE_BYTES, edges[-1] // PAGE_BYTES * PAGE_BYTES
    cuts = {min(max(cut, first), last) for edge in edges for cut in (edge // page * page, -(-edge // page) * page)}
    return [(slice(start, stop), range(bisect_right(edges, start) - 1, bisect_left(edges, stop)))
            for start, stop in pairwise(sorted({first, *cuts, last}))]
