"""Parameters, gradients and histories of large layer groups as tensors of a memory plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from scaffe.mapped_memory import PAGE_BYTES, address, inner, rounded
from scaffe.memory.problem import tensors
from scaffe.memory.problem.costs import BYTES_A_SECOND
from scaffe.memory.problem.iteration import Recompute, Tensor
from scaffe.memory.problem.layer_groups import (
    LayerGroup,
    blocks_place,
    bytes_in_pages,
    chunks,
    layers_of,
    pages_of_blocks,
)
from scaffe.memory.problem.tensors import StateTensor, forward_group
from scaffe.nets.blob_memory import backward_steps
from scaffe.nets.net import Net


def parameter_tensors(net: Net, group: LayerGroup) -> list[StateTensor]:
    """The whole pages of a group's parameters, which are updated within backward. If they are updated block by block,
    they are several tensors: see ``pages_of_blocks``."""
    layers, (forward, backward) = layers_of(net, group), _uses(net, group)
    name = _named(net, group, "parameters")
    return [StateTensor(data, Tensor(name, data.nbytes, forward, backward, late=late, is_persistent=True), layers)
            for data, late in _arrays(net, group) if data.nbytes]


def gradient_tensor(net: Net, group: LayerGroup) -> StateTensor:
    """The whole pages of a group's gradients, which are all in memory for its update."""
    diff = inner(net.params.diff[group.place].view(np.uint8))
    tensor = Tensor(_named(net, group, "gradients"), diff.nbytes, (), _uses(net, group)[1])
    return StateTensor(diff, tensor, layers_of(net, group))


def block_gradient_tensors(net: Net, groups: Sequence[LayerGroup]) -> list[StateTensor]:
    """The whole pages in which gradients of blocks of rows are computed: one tensor for all groups, or none."""
    groups = [group for group in groups if group.first_layer in net.steps.behind]
    if not groups:
        return []
    diff = inner(net.params.diff[blocks_place(net, groups)].view(np.uint8), PAGE_BYTES)
    whole = sum(inner(net.params.diff[group.place].view(np.uint8)).nbytes for group in groups)
    return [StateTensor(diff, _of_rows(net, groups, diff.nbytes), [group.first_layer for group in groups],
                 never_materialized=whole - diff.nbytes)]


def _of_rows(net: Net, groups: Sequence[LayerGroup], n_bytes: int) -> Tensor:
    steps = sorted(step for group in groups for step in net.steps.rows(group.first_layer))
    return Tensor("gradients of rows", n_bytes, (), tuple(steps), is_transient=True)


def _arrays(net: Net, group: LayerGroup) -> list[tuple[np.ndarray, tuple[int, ...]]]:
    """The whole pages of a group's parameters, uint8: in one array, or divided by blocks of rows, each with the steps
    in which these are updated."""
    if group.first_layer not in net.steps.behind:
        return [(inner(net.params.data[group.place].view(np.uint8)), ())]
    memory, steps = net.params.data[group.place].view(np.uint8), net.steps.rows(group.first_layer)
    start, item = address(memory), net.params.dtype.itemsize
    edges = [start + (chunk.start - group.place.start) * item for chunk in chunks(net, group)]
    return [(memory[where.start - start:where.stop - start], tuple(steps[block] for block in blocks))
            for where, blocks in pages_of_blocks([*edges, start + memory.nbytes])
            if where.stop - where.start >= tensors.LEAST_BYTES]


def refreshed(parameters: StateTensor, refresh: Callable[[], None] | None) -> StateTensor:
    """The same of parameters that somebody writes before each forward, so that they are not persistent. ``refresh``:
    writes once more, in backward, what forward had; None if nobody can."""
    recompute = None if refresh is None else Recompute((), (), 2 * parameters.tensor.n_bytes / BYTES_A_SECOND)
    tensor = replace(parameters.tensor, is_persistent=False, recompute=recompute)
    return replace(parameters, tensor=tensor, refresh=refresh or parameters.refresh)


def device_parameter_tensor(net: Net, group: LayerGroup, place: np.ndarray, backward: bool = True) -> StateTensor:
    """A group's parameters on a device, in memory that is bound to them.

    Args:
        place: on the host, with their contents: uint8, ``bytes_in_pages``.
        backward: whether there is a backward, which reads them, and whose last step changes them.
    """
    ahead, back = _uses(net, group)
    back = tuple(sorted({*back, *net.steps.rows(group.first_layer)})) if backward else ()
    tensor = Tensor(_named(net, group, "parameters"), bytes_in_pages(net, group), ahead, back, is_persistent=True)
    return StateTensor(place, tensor, layers_of(net, group), partial(net.params.put, "data", group.place))


def device_gradient_tensors(net: Net, groups: Sequence[LayerGroup]) -> list[StateTensor]:
    """Groups' gradients on a device, which are needed for a few steps of backward. Those that are computed by blocks of
    rows share one tensor."""
    found, by_rows = list[StateTensor](), [group for group in groups if group.first_layer in net.steps.behind]
    for group in (group for group in groups if group not in by_rows):
        tensor = Tensor(_named(net, group, "gradients"), bytes_in_pages(net, group), (), _uses(net, group)[1])
        bind = partial(net.params.put, "diff", group.place)
        found.append(StateTensor(np.empty(0, np.uint8), tensor, layers_of(net, group), bind))
    if by_rows:
        place = blocks_place(net, by_rows)
        tensor = _of_rows(net, by_rows, rounded((place.stop - place.start) * net.params.dtype.itemsize))
        found.append(StateTensor(np.empty(0, np.uint8), tensor, [group.first_layer for group in by_rows],
                          partial(net.params.put_elements, "diff", place)))
    return found


def gradient_places(net: Net, groups: Sequence[LayerGroup]) -> list[slice]:
    """The intervals of the flat gradients of groups, in elements, with that of blocks of rows by itself."""
    by_rows = [group for group in groups if group.first_layer in net.steps.behind]
    blocks = blocks_place(net, by_rows) if by_rows else slice(0, 0)
    found = list[slice]()
    for place in (group.place for group in groups):
        inside = [edge for edge in (blocks.start, blocks.stop) if place.start < edge < place.stop]
        found += [slice(start, stop) for start, stop in pairwise([place.start, *inside, place.stop])]
    return found


def _named(net: Net, group: LayerGroup, what: str) -> str:
    return f"{net.nodes[group.first_layer].name} {what}"


def _uses(net: Net, group: LayerGroup) -> tuple[tuple[int, ...], tuple[int, ...]]:
    layers = layers_of(net, group)
    backward = {step for layer in layers for step in backward_steps(net, layer)}
    return (tuple(sorted({step for layer in layers for step in forward_group(net, layer)})),
            tuple(sorted(backward | {*net.steps.updates(group.first_layer)})))


def weight_tensor(net: Net, group: LayerGroup) -> StateTensor:
    """The whole pages of a group's parameters that nobody changes."""
    data = inner(net.params.data[group.place].view(np.uint8))
    tensor = Tensor(_named(net, group, "parameters"), data.nbytes, _uses(net, group)[0], is_persistent=True)
    return StateTensor(data, tensor, layers_of(net, group))


def history_tensor(net: Net, group: LayerGroup, memory: np.ndarray, step: int) -> StateTensor:
    """A history of a group, or of a chunk of it, which its update reads and writes in one step."""
    return StateTensor(memory, planned_history(net, group, memory.nbytes, step), [])


def planned_history(net: Net, group: LayerGroup, n_bytes: int, step: int) -> Tensor:
    """What a plan knows of such a history."""
    return Tensor(_named(net, group, "history"), n_bytes, (), (step,), is_persistent=True)
