"""Places the activations of a forward pass in one arena, whose memory is reused while it is still in the cache."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.reshaping.reshape import Flatten, Reshape
from scaffe.nets.blob_memory import BlobMemory, forward_steps, kept_blobs, memory_owners, place
from scaffe.nets.inference.fused_convolution import Group
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


def may_share(node: Node) -> bool:
    """Whether a layer's tops share its bottom's memory, for the present shapes or for others."""
    return node.layer.shares_data or _depends_on_shapes(node)


def _depends_on_shapes(node: Node) -> bool:
    """Whether a layer's top shares its bottom's memory for some shapes and not for others."""
    return isinstance(node.layer, (Flatten, Reshape))


def possible_owners(net: Net) -> dict[int, Blob]:
    """By id of each blob, the blob that owns its memory, or may own it when shapes change."""
    owner: dict[int, Blob] = {}
    for node in net.nodes:
        for top in node.tops:
            owner.setdefault(id(top), owner[id(node.bottoms[0])] if node.bottoms and may_share(node) else top)
    return owner


class Activations:
    """The blobs between layers, which share an arena from ``bind`` to ``release``.

    Inputs, losses, outputs, blobs that a user's layers read, and blobs that alias another one for some shapes only
    keep memory of their own.

    Args:
        kept: names of further blobs that keep memory of their own.

    Attributes:
        names: names of the blobs in the arena.
    """

    def __init__(self, net: Net, groups: Sequence[Group], kept: Collection[str]) -> None:
        self._net, self._owner = net, memory_owners(net, "shares_data")
        heads = {i: group.members[0] for group in groups for i in group.members}
        unwritten = [name for group in groups for name in group.hidden]
        ids = {*kept_blobs(net), *(id(net.blobs[name]) for name in (*kept, *unwritten))}
        ids |= {id(blob) for node in net.nodes if node.layer.host_only or node.is_source or _depends_on_shapes(node)
                for blob in (*node.bottoms, *node.tops)}
        alone = {id(self._owner[key]) for key in ids}
        self._parts = {key: part for key, part in self._uses(heads).items() if key not in alone and part.blob.n_elems}
        self.names = {name for name, blob in net.blobs.items() if id(self._owner[id(blob)]) in self._parts}
        self._others: dict[int, list[Blob]] = {}  # blobs that alias a part's blob, as the tops of Split do
        for blob in {id(top): top for node in net.nodes for top in node.tops}.values():
            if self._owner[id(blob)] is not blob:
                self._others.setdefault(id(self._owner[id(blob)]), []).append(blob)
        for group in groups:
            self._merge(group)
        self._places: list[np.ndarray] = []  # the parts' memory in the arena, for the shapes at the last bind
        self._own: list[list[np.ndarray | None]] = []  # the memory that the parts' blobs had before

    def bind(self) -> None:
        n_bytes = [part.lifetime.n_bytes for part in self._parts.values()]
        if [place.nbytes for place in self._places] != n_bytes:
            self.release()
            self._places = self._new_places()
        if not self._own:
            self._own = [[blob.change_memory(data) for blob in self._blobs(key)]
                         for key, data in zip(self._parts, self._places, strict=True)]

    def release(self) -> None:
        for key, owned in zip(self._parts, self._own, strict=False):
            for blob, own in zip(self._blobs(key), owned, strict=True):
                is_enough = own is not None and own.size >= blob.n_elems
                blob.change_memory(own if is_enough else None)
        self._own = []

    def _blobs(self, key: int) -> list[Blob]:
        return [self._parts[key].blob, *self._others.get(key, ())]

    def _new_places(self) -> list[np.ndarray]:
        lifetimes = [part.lifetime for part in self._parts.values()]
        offsets, n_bytes = place(lifetimes)
        memory = self._net.context.kernels.zeros(n_bytes, np.dtype(np.uint8))
        return [memory[start:start + lifetime.n_bytes].view(part.blob.dtype)
                for part, start, lifetime in zip(self._parts.values(), offsets, lifetimes, strict=True)]

    def _merge(self, group: Group) -> None:
        added, y = group.added, group.y
        if added is None or added.shape != y.shape or (added.dtype, added.channels_last) != (y.dtype, y.channels_last):
            return
        source, target = self._owner[id(added)], self._owner[id(y)]
        if self._owner[id(group.x)] is source or target is source or not {id(source), id(target)} <= set(self._parts):
            return
        readers = {i for i, node in enumerate(self._net.nodes)
                   if any(self._owner[id(blob)] is source for blob in (*node.bottoms, *node.tops))}
        if max(readers - set(group.members), default=-1) > group.members[0]:
            return
        moved = [target, *self._others.pop(id(target), ())]
        self._others.setdefault(id(source), []).extend(moved)
        self._parts[id(source)].steps.extend(self._parts.pop(id(target)).steps)
        self._owner |= {key: source for key, blob in self._owner.items() if blob is target}

    def _uses(self, heads: Mapping[int, int]) -> dict[int, BlobMemory]:
        found: dict[int, BlobMemory] = {}
        for index, node in enumerate(self._net.nodes):
            for blob in (*node.bottoms, *node.tops):
                owner = self._owner[id(blob)]
                steps = (*forward_steps(self._net, index), heads.get(index, index))
                found.setdefault(id(owner), BlobMemory(owner)).steps.extend(steps)
        return found
