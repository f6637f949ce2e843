"""From a net to the arrays of a memory plan: which steps use each blob's data and diff, what can be computed again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.mapped_memory import rounded
from scaffe.memory.problem.iteration import Recompute, Tensor
from scaffe.nets.blob_memory import backward_steps, kept_blobs, memory_owners, written_diffs
from scaffe.nets.net import Net

LEAST_BYTES = 1 << 16  # shorter arrays always stay in memory


@dataclass
class ActivationTensor:
    """An array of the plan: the data, or the diff, of a group of blobs that share memory.

    Attributes:
        blob: the blob of the group that owns the memory.
        is_diff: which of the two.
        tensor: what the plan knows of it.
    """

    blob: Blob
    is_diff: bool
    tensor: Tensor


@dataclass
class StateTensor:
    """An array of the plan that is part of parameters, gradients or histories.

    Attributes:
        memory: its whole pages, uint8; on a device, of what has contents already, its place on the host. Empty if it
            has none of its own.
        tensor: what the plan knows of it.
        layers: those whose parameters, or gradients, it has.
        bind: told where the array is, uint8, whenever that changes.
        refresh: gives it once more what the last forward had, where its part can be computed again.
        never_materialized: bytes of the net's gradients that are never in memory, since they come in it one after another.
    """

    memory: np.ndarray
    tensor: Tensor
    layers: Sequence[int]
    bind: Callable[[Any], None] = lambda memory: None
    refresh: Callable[[], None] = lambda: None
    never_materialized: int = 0

    @property
    def is_refreshed(self) -> bool:
        """Whether it has parameters that somebody writes anew before each forward."""
        return bool(self.tensor.forward) and not self.tensor.is_persistent


def tensors_of(net: Net, activations: Sequence[ActivationTensor], state: Sequence[StateTensor]) -> tuple[Tensor, ...]:
    """The arrays of a plan, blobs first. Where a blob is computed again, parameters that may move are read too.

    Args:
        net: the net of them all.
        activations: its blobs' arrays.
        state: arrays of parameters and what goes with them.
    """
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


@dataclass
class _Uses:
    """What is known of one group's data while layers are looked through."""

    blob: Blob
    name: str
    forward: set[int] = field(default_factory=set)
    backward: set[int] = field(default_factory=set)
    writers: list[int] = field(default_factory=list)

    def tensor(self, recompute: Recompute | None) -> Tensor:
        """The same for a plan."""
        steps = tuple(sorted(self.forward)), tuple(sorted(self.backward))
        return Tensor(self.name, rounded(_n_bytes(self.blob)), *steps, recompute)


def activation_tensors(net: Net, backward: bool = True, shown: Collection[str] = ()) -> list[ActivationTensor]:
    """The data and diffs of a net's blobs that a plan may move, drop or compute again.

    Left out, since others read or write them outside of the passes: tops of losses, the net's outputs, tops of layers
    without bottoms that their forward does not fill, and blobs of layers of the user's (Python); also what is short.

    Args:
        net: a built net.
        backward: whether it runs backward too.
        shown: names of blobs that somebody else reads after a pass.
    """
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
    """Whether a blob's data, or diff, may leave memory."""
    return is_worth_moving(_n_bytes(blob))


def is_worth_moving(n_bytes: int) -> bool:
    """Whether an array of so many bytes may leave memory."""
    return n_bytes >= LEAST_BYTES


def _n_bytes(blob: Blob) -> int:
    return blob.n_elems * blob.dtype.itemsize


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
    """The steps of a layer's backward that read its bottoms' data."""
    if index in net.steps.behind:
        return net.steps.rows(index)
    return net.steps.backward(index)[:1] if index in net.steps.divided else backward_steps(net, index)


def _writing_steps(net: Net, index: int) -> Sequence[int]:
    """The steps of a layer's backward that write its bottoms' diffs."""
    return net.steps.backward(index)[1:] if index in net.steps.divided else backward_steps(net, index)


def forward_group(net: Net, index: int) -> range:
    """The layers that run forward in one pass with this one: what one of them uses is there in all their steps."""
    head = index - net.nodes[index].fused_offset
    return range(head, head + 1 + net.nodes[head].n_fused)


def _diff_uses(net: Net) -> dict[int, _Uses]:
    owner = memory_owners(net, "shares_diff")
    found: dict[int, _Uses] = {}
    for index, node in enumerate(net.nodes):
        if node.needs_backward:
            for blob in (*node.bottoms, *node.tops):
                uses = found.setdefault(id(owner[id(blob)]), _Uses(owner[id(blob)], _name(net, owner[id(blob)])))
                is_read = any(blob is top for top in node.tops)
                uses.backward.update([*backward_steps(net, index), *net.steps.rows(index)] if is_read
                                     else _writing_steps(net, index))
    written = {id(owner[id(blob)]) for blob in written_diffs(net.nodes)}
    return {key: uses for key, uses in found.items() if key in written}


def _name(net: Net, blob: Blob) -> str:
    """The blob's name; of one that no prototxt names, that of the layer that writes it."""
    named = [name for name, other in net.blobs.items() if other is blob]
    return named[0] if named else next(
        (node.name for node in net.nodes if any(top is blob for top in node.tops)), "?")


def _recompute(net: Net, key: int, data: dict[int, _Uses], numbers: dict[int, int]) -> Recompute | None:
    """How a group's data can be computed once more, if all who write them are repeatable and write nothing else, and
    nobody reads them when parameters may have been updated already."""
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
        if any(_is_written_later(data[other].writers, head) for other in read if other in data):
            return None
        inputs |= {numbers[other] for other in read if other in numbers}
    if not heads or _reads_before_it_writes(net, key, heads[0], owner):
        return None
    return Recompute(tuple(heads), tuple(sorted(inputs)))


def _is_written_later(writers: Sequence[int], head: int) -> bool:
    return any(writer >= head for writer in writers)


def joined_steps(net: Net) -> frozenset[int]:
    """The steps of forward that run in one pass with the step before."""
    return frozenset(index for index, node in enumerate(net.nodes) if node.fused_offset)


def _reads_before_it_writes(net: Net, key: int, head: int, owner: dict[int, Blob]) -> bool:
    """Whether the first layer to write a group's data has them as its bottom too: they come from elsewhere."""
    return any(id(owner[id(blob)]) == key for blob in net.nodes[head].bottoms)
