"""From a net to the tensors of a memory plan: which steps use each blob's data and diff, and what can be recomputed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.mapped_memory import rounded
from scaffe.memory.problem.iteration import Iteration, Recompute, Tensor
from scaffe.nets.blob_memory import backward_steps, kept_blobs, memory_owners, written_diffs
from scaffe.nets.net import Net

LEAST_BYTES = 1 << 16  # shorter arrays always stay in memory


@dataclass
class ActivationTensor:
    """A tensor of the plan that is the data, or the diff, of a group of blobs that share memory. ``blob``: the blob of
    the group that owns the memory."""

    blob: Blob
    is_diff: bool
    tensor: Tensor


@dataclass
class StateTensor:
    """A tensor of the plan that is part of parameters, gradients or histories.

    Attributes:
        memory: its whole pages, uint8; for a device, the place on the host of a tensor that has contents already. Empty
            if it has no memory of its own.
        bind: called with the array, uint8, whenever its place changes.
        refresh: writes into it once more what the last forward had, if the plan may recompute it.
        never_materialized: bytes of the net's gradients that are never all in memory, since they are computed in this
            tensor one after another.
    """

    memory: np.ndarray
    tensor: Tensor
    layers: Sequence[int]
    bind: Callable[[Any], None] = lambda memory: None
    refresh: Callable[[], None] = lambda: None
    never_materialized: int = 0

    @property
    def is_refreshed(self) -> bool:
        """Whether it is of parameters that somebody writes anew before each forward."""
        return bool(self.tensor.forward) and not self.tensor.is_persistent


def tensors_of(net: Net, activations: Sequence[ActivationTensor], state: Sequence[StateTensor]) -> tuple[Tensor, ...]:
    """The tensors of a plan, activations first. Where an activation is recomputed, parameters that may be offloaded are
    inputs too."""
    read: dict[int, list[int]] = {}
    for number, one in enumerate(state, len(activations)):
        for layer in one.layers if one.tensor.forward else ():
            read.setdefault(layer, []).append(number)
    found = []
    for each in activations:
        recompute = each.tensor.recompute
        if recompute is not None:
            layers = [i for head in recompute.layers for i in forward_group(net, head)]
            inputs = {*recompute.inputs, *(number for i in layers for number in read.get(i, ()))}
            recompute = Recompute(recompute.layers, tuple(sorted(inputs)))
        found.append(replace(each.tensor, recompute=recompute))
    return (*found, *(each.tensor for each in state))


def sharers(net: Net, activations: Sequence[ActivationTensor]) -> list[list[Blob]]:
    """For each activation the blobs that have its memory, the owner first."""
    owners = [memory_owners(net, shares) for shares in ("shares_data", "shares_diff")]
    blobs = {id(blob): blob for node in net.nodes for blob in (*node.bottoms, *node.tops)}
    found = list[list[Blob]]()
    for each in activations:
        owner = owners[each.is_diff]
        found.append([each.blob, *(blobs[key] for key, other in owner.items()
                                   if other is each.blob and key != id(each.blob))])
    return found


@dataclass
class _Uses:
    """What is known of one group's data while layers are looked through."""

    blob: Blob
    name: str
    forward: set[int] = field(default_factory=set)
    backward: set[int] = field(default_factory=set)
    writers: list[int] = field(default_factory=list)

    def tensor(self, recompute: Recompute | None) -> Tensor:
        steps = tuple(sorted(self.forward)), tuple(sorted(self.backward))
        n_bytes = rounded(self.blob.n_elems * self.blob.dtype.itemsize)
        return Tensor(self.name, n_bytes, *steps, recompute)


def activation_tensors(net: Net, backward: bool = True, shown: Collection[str] = ()) -> list[ActivationTensor]:
    """The data and diffs of a net's blobs that a plan may offload, drop or recompute.

    Left out is what is read or written outside of the passes: tops of losses, the net's outputs, tops of layers without
    bottoms that their forward does not fill, and blobs of layers of the user's (Python). Short blobs are left out too.
    ``shown``: names of blobs that somebody else reads after a pass."""
    pinned = _pinned(net, shown)
    uses_of_data = _data_uses(net, backward)
    data = {key: uses for key, uses in uses_of_data.items() if key not in pinned and is_long(uses.blob)}
    numbers = {key: number for number, key in enumerate(data)}
    found = []
    for key, uses in data.items():
        recompute = _recompute(net, key, data, numbers)
        found.append(ActivationTensor(uses.blob, False, uses.tensor(recompute)))
    for key, uses in (_diff_uses(net) if backward else {}).items():
        if key not in pinned and is_long(uses.blob):
            found.append(ActivationTensor(uses.blob, True, uses.tensor(None)))
    return found


def _pinned(net: Net, shown: Collection[str]) -> set[int]:
    """Owners, by id, of memory that the plan leaves alone."""
    data, diffs = memory_owners(net, "shares_data"), memory_owners(net, "shares_diff")
    anew = {id(node.tops[i]) for node in net.nodes for i in node.layer.filled_tops}
    ids = {id(blob) for node in net.nodes if node.layer.host_only for blob in (*node.bottoms, *node.tops)}
    ids |= kept_blobs(net).keys() - anew | {id(net.blobs[name]) for name in (*net.output_names, *shown)}
    return {id(owner[key]) for owner in (data, diffs) for key in ids}


def is_long(blob: Blob) -> bool:
    """Whether a blob's data, or diff, may be offloaded."""
    return blob.n_elems * blob.dtype.itemsize >= LEAST_BYTES


def _data_uses(net: Net, backward: bool) -> dict[int, _Uses]:
    owner = memory_owners(net, "shares_data")
    found: dict[int, _Uses] = {}
    for index, node in enumerate(net.nodes):
        layer = node.layer
        read = {id(blob) for blob in (*(node.bottoms if layer.reads_bottoms else ()),
                                      *(node.tops if layer.reads_tops else ()))}
        for blob in (*node.bottoms, *node.tops):
            uses = found.setdefault(id(owner[id(blob)]), _Uses(owner[id(blob)], _name(net, owner[id(blob)])))
            uses.forward.update(forward_group(net, index))
            if backward and node.needs_backward and id(blob) in read:
                uses.backward.update(_reading_steps(net, index))
        for key in {id(owner[id(top)]) for top in node.tops}:
            if not node.layer.shares_data:
                found[key].writers.append(index)
    return found


def _reading_steps(net: Net, index: int) -> Sequence[int]:
    if index in net.steps.behind:
        return net.steps.rows(index)
    return net.steps.backward(index)[:1] if index in net.steps.divided else backward_steps(net, index)


def forward_group(net: Net, index: int) -> range:
    """The layers that run forward in one pass with this one. What one of them uses is in memory in all their steps."""
    head = index - net.nodes[index].fused_offset
    return range(head, head + 1 + net.nodes[head].n_fused)


def _diff_uses(net: Net) -> dict[int, _Uses]:
    owner = memory_owners(net, "shares_diff")
    found: dict[int, _Uses] = {}
    for index, node in enumerate(net.nodes):
        if node.needs_backward:
            for blob in (*node.bottoms, *node.tops):
                uses = found.setdefault(id(owner[id(blob)]), _Uses(owner[id(blob)], _name(net, owner[id(blob)])))
                if any(blob is top for top in node.tops):
                    uses.backward.update([*backward_steps(net, index), *net.steps.rows(index)])
                else:  # it is written
                    uses.backward.update(net.steps.backward(index)[1:] if index in net.steps.divided else
                                         backward_steps(net, index))
    written = {id(owner[id(blob)]) for blob in written_diffs(net.nodes)}
    return {key: uses for key, uses in found.items() if key in written}


def _name(net: Net, blob: Blob) -> str:
    """The blob's name, or that of the layer that writes it if the prototxt names no such blob."""
    named = [name for name, other in net.blobs.items() if other is blob]
    return named[0] if named else next(
        (node.name for node in net.nodes if any(top is blob for top in node.tops)), "?")


def _recompute(net: Net, key: int, data: dict[int, _Uses], numbers: dict[int, int]) -> Recompute | None:
    """How a group's data can be computed once more. None unless all layers that write them are repeatable and write
    nothing else, and nobody reads the data when parameters may have been updated already."""
    owner = memory_owners(net, "shares_data")
    if any(id(owner[id(blob)]) == key for layer in net.steps.behind for blob in net.nodes[layer].bottoms):
        return None
    heads = sorted({index - net.nodes[index].fused_offset for index in data[key].writers})
    inputs: set[int] = set()
    for head in heads:
        nodes = net.nodes[head:head + 1 + net.nodes[head].n_fused]
        if not all(node.layer.repeatable and not node.layer.reshape_always for node in nodes):
            return None
        if {id(owner[id(top)]) for node in nodes for top in node.tops} != {key}:
            return None
        read = {id(owner[id(blob)]) for node in nodes for blob in node.bottoms} - {key}
        if any(writer >= head for other in read & data.keys() for writer in data[other].writers):
            return None
        inputs |= {numbers[other] for other in read if other in numbers}
    if not heads or any(id(owner[id(blob)]) == key for blob in net.nodes[heads[0]].bottoms):  # they come from elsewhere
        return None
    return Recompute(tuple(heads), tuple(sorted(inputs)))


def iteration_of(net: Net, activations: Sequence[ActivationTensor], state: Sequence[StateTensor],
                 seconds: Sequence[float], n_updates: int = 0, is_recorded: bool = False) -> Iteration:
    """What a plan of a net is made from.

    Args:
        seconds: of each step.
        n_updates: steps of updates behind the passes.
        is_recorded: whether passes are recorded on a device, where both steps of a divided layer are in one recording.
    """
    joined = {index for index, node in enumerate(net.nodes) if node.fused_offset}
    if is_recorded:
        joined |= {net.steps.backward(layer)[-1] for layer in net.steps.divided}
    return Iteration(tensors_of(net, activations, state), tuple(seconds), n_updates, frozenset(joined))


