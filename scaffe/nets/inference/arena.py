"""Activations of a pass in one piece of memory, where each is written over what nobody reads any more: it is still in
the processor's cache."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.nets.activation_memory import Part, forward_steps, kept_blobs, memory_owners
from scaffe.nets.arena import place
from scaffe.nets.net import Net


class Activations:
    """The blobs between layers, and the memory that they share from ``bind`` to ``release``.

    Inputs, losses, outputs and what a user's layers read keep their own.

    Args:
        net: the net.
        heads: of layers that run as part of another's pass, the index of that one.
        kept: names of blobs that keep their own memory, too.
        unwritten: names of those that no pass writes.

    Attributes:
        names: of the blobs that share memory.
    """

    def __init__(self, net: Net, heads: Mapping[int, int], kept: Collection[str], unwritten: Collection[str]) -> None:
        self._net, self._owner = net, memory_owners(net, "shares_data")
        ids = {*kept_blobs(net), *(id(net.blobs[name]) for name in (*kept, *unwritten))}
        ids |= {id(blob) for node in net.nodes if node.layer.host_only or node.is_source
                for blob in (*node.bottoms, *node.tops)}
        alone = {id(self._owner[key]) for key in ids}
        self._parts = {key: part for key, part in self._uses(heads).items() if key not in alone and part.blob.n_elems}
        self.names = {name for name, blob in net.blobs.items() if id(self._owner[id(blob)]) in self._parts}
        self._others: dict[int, list[Blob]] = {}  # that have a part's memory, too, as the tops of Split do
        for blob in {id(top): top for node in net.nodes for top in node.tops}.values():
            if self._owner[id(blob)] is not blob:
                self._others.setdefault(id(self._owner[id(blob)]), []).append(blob)
        self._places: list[np.ndarray] = []  # of the parts, for their shapes when they were last bound
        self._own: list[np.ndarray | None] = []  # memory of the parts that are bound

    def bind(self) -> None:
        """Let the blobs share memory; what they held is put aside."""
        n_bytes = [part.lifetime.n_bytes for part in self._parts.values()]
        if [place.nbytes for place in self._places] != n_bytes:
            self.release()
            self._places = self._new_places()
        if not self._own:
            self._own = [part.blob.change_memory(data)
                         for part, data in zip(self._parts.values(), self._places, strict=True)]

    def release(self) -> None:
        """Give the blobs their own memory again, as it was."""
        for (key, part), own in zip(self._parts.items(), self._own, strict=False):
            is_enough = own is not None and own.size >= part.blob.n_elems
            for blob in (part.blob, *self._others.get(key, ())):
                blob.change_memory(own if is_enough else None)
        self._own = []

    def _new_places(self) -> list[np.ndarray]:
        lifetimes = [part.lifetime for part in self._parts.values()]
        offsets, n_bytes = place(lifetimes)
        memory = self._net.context.kernels.zeros(n_bytes, np.dtype(np.uint8))
        return [memory[start:start + lifetime.n_bytes].view(part.blob.dtype)
                for part, start, lifetime in zip(self._parts.values(), offsets, lifetimes, strict=True)]

    def _uses(self, heads: Mapping[int, int]) -> dict[int, Part]:
        """The steps in which each piece of memory is read or written, by its owner's id."""
        found: dict[int, Part] = {}
        for index, node in enumerate(self._net.nodes):
            for blob in (*node.bottoms, *node.tops):
                owner = self._owner[id(blob)]
                steps = (*forward_steps(self._net, index), heads.get(index, index))
                found.setdefault(id(owner), Part(owner)).steps.extend(steps)
        return found
