"""Lazily computed blobs: a blob that an optimized pass skipped is computed when it is read, with the pass's values.

The layers run again, in memory of their own, on what the pass read. In the net, only the blob that is read is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import TEST, Layer
from scaffe.layers.base.writes import Writes
from scaffe.nets.inference.arena import may_share, possible_owners
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


class Repeatable:
    """The layers of a net (a script's TEST net, on the host) that may run again after a pass.

    These are layers without state, random numbers or side effects, all of whose bottoms follow from the net's sources
    through such layers, and which no user's layer may have written.

    Attributes:
        kept: names of the blobs that other layers write, which a pass must keep.
        owners: by a blob's id, the blob that owns its memory, or may own it when shapes change.
        writes_sources: whether a layer writes a source's top, which then no longer holds what the pass read.
    """

    def __init__(self, net: Net) -> None:
        self.owners = possible_owners(net)
        sources = {self._key(top) for node in net.nodes if node.is_source for top in node.tops}
        users = {self._key(blob) for node in net.nodes if node.layer.host_only for blob in node.bottoms}
        touched = {*(sources & users)}
        self.nodes: list[int] = []
        self.writes_sources = False
        for index, node in enumerate(net.nodes):
            if node.is_source:
                continue
            tops = {self._key(top) for top in node.tops}
            self.writes_sources |= not may_share(node) and not tops.isdisjoint(sources)
            if is_stateless(node) and touched.isdisjoint(map(self._key, node.bottoms)):
                self.nodes.append(index)
            else:
                touched |= tops | {self._key(blob) for blob in node.bottoms if node.layer.host_only}
        self.kept = {name for name, blob in net.blobs.items() if self._key(blob) in touched}

    def _key(self, blob: Blob) -> int:
        return id(self.owners[id(blob)])


def is_stateless(node: Node) -> bool:
    """Whether a layer's forward, run again on the same bottoms and parameters, gives the same tops and has no effect
    besides."""
    layer = node.layer
    repeats = layer.repeatable and type(layer).forward_again is Layer.forward_again and len(node.bottoms) == 1
    return (not node.is_source and layer.context.phase == TEST and (layer.by_image or repeats)
            and not (layer.host_only or layer.reshape_always or any(node.loss_weights)))


@dataclass
class _Group:
    """Skipped blobs that share memory, which ``blobs[0]`` owns, and the index of the last layer that writes it."""

    blobs: list[Blob] = field(default_factory=list)
    last: int = -1


class LazyBlobs:
    """The blobs that the last pass of a net skipped and that have not been computed yet.

    The tops of sources and the parameters, from which they are computed, are copied before anybody may write them.

    Args:
        skipped: names of the blobs that its passes skip, with all blobs that share their memory.

    Attributes:
        is_open: whether only reads and writes of blobs have happened since the pass.
    """

    def __init__(self, net: Net, repeatable: Repeatable, skipped: Collection[str]) -> None:
        self._net, self._nodes, self._owners = net, repeatable.nodes, repeatable.owners
        self._groups = self._grouped(skipped)
        self._keys = {name: id(self._owners[id(net.blobs[name])]) for name in skipped}
        sources = [top for node in net.nodes if node.is_source for top in node.tops]
        self._sources = {id(top) for top in sources}
        self._users = [top for node in net.nodes if node.is_source and node.layer.host_only for top in node.tops]
        params = [blob for i in self._nodes for blob in net.nodes[i].layer.blobs]
        self._roots = list({id(blob): blob for blob in (*sources, *params)}.values())
        self._blobs = [blob for i in self._nodes for blob in (*net.nodes[i].bottoms, *net.nodes[i].tops)]
        self._watched: list[Writes] = []
        self._written: dict[int, list[Blob]] = {}  # the roots by the id of their Writes, which several may share
        self._spare: dict[int, np.ndarray] = {}  # memory for copies of sources, reused in each pass
        self._left: dict[int, _Group] = {}
        self.drop()

    def begin(self) -> None:
        self._left, self.is_open = dict(self._groups), True
        writes = [root.writes for root in self._roots]
        if writes != self._watched:  # a parameter that was shared has another Writes
            self._watch(writes)
        for root, each in zip(self._roots, writes, strict=True):
            if each.is_lent:
                self._copy(root)
        for root in self._users:
            self._copy(root)

    def drop(self) -> None:
        """Forget the last pass, as another one is about to write all blobs."""
        self._left = {}
        self.is_open = False
        self._shapes: list[Shape] | None = None
        self._copies: dict[int, np.ndarray] = {}
        self._scratch: dict[int, Blob] = {}
        self._n_done = 0

    @property
    def names(self) -> list[str]:
        return [name for name in self._keys if self.holds(name)]

    def holds(self, name: str) -> bool:
        return self._keys.get(name) in self._left

    def compute(self, name: str) -> None:
        if not self.holds(name):
            return
        group = self._left.pop(self._keys[name])
        while self._n_done < len(self._nodes) and self._nodes[self._n_done] <= group.last:
            self._run(self._nodes[self._n_done])
            self._n_done += 1
        owner, *others = group.blobs
        values = self._scratch[id(owner)].data_flat
        if owner.n_elems == len(values):  # else it was reshaped since, and its values are undefined
            owner.data_flat[...] = values
            for blob in others:
                blob.share_data(owner)

    def compute_all(self) -> None:
        """Compute all skipped blobs, and let all layers keep what their backward needs."""
        for name in self.names:
            self.compute(name)
        if self.is_open:
            for index in self._nodes[self._n_done:]:
                self._run(index)
        self.drop()

    def before_write(self, writes: Writes) -> None:
        for root in self._written.get(id(writes), ()) if self.is_open else ():
            self._copy(root)

    def before_reshape(self) -> None:
        """Note the blobs' shapes in the pass, as they are about to change."""
        if self._shapes is None:
            self._shapes = [blob.shape for blob in self._blobs]

    def _grouped(self, skipped: Collection[str]) -> dict[int, _Group]:
        groups = {id(self._owners[id(self._net.blobs[name])]): _Group() for name in skipped}
        for index in self._nodes:
            for top in self._net.nodes[index].tops:
                group = groups.get(id(self._owners[id(top)]))
                if group is not None:
                    group.last = index
                    group.blobs += [] if any(top is blob for blob in group.blobs) else [top]
        return groups

    def _watch(self, writes: list[Writes]) -> None:
        self._watched, self._written = writes, {}
        for root, each in zip(self._roots, writes, strict=True):
            each.watch(self)
            self._written.setdefault(id(each), []).append(root)

    def _copy(self, root: Blob) -> np.ndarray:
        """Copy a root's values, once a pass. Returns the copy."""
        key = id(root)
        if key not in self._copies:
            values, spare = root.data_flat, self._spare.get(key)
            if spare is None or spare.size != values.size:
                spare = np.empty_like(values)
                if key in self._sources:
                    self._spare[key] = spare
            spare[...] = values
            self._copies[key] = spare
        return self._copies[key]

    def _run(self, index: int) -> None:
        node = self._net.nodes[index]
        bottoms, tops, seen = node.bottoms, node.tops, node.seen_shapes
        with self._former(node.layer.blobs):
            node.bottoms, node.tops = [self._at(blob) for blob in bottoms], [self._at(blob) for blob in tops]
            try:
                self._net.forward(index, index)
            finally:
                node.bottoms, node.tops = bottoms, tops
                if node.seen_shapes != seen:  # the net was reshaped meanwhile
                    node.seen_shapes = None

    @contextmanager
    def _former(self, params: Collection[Blob]) -> Iterator[None]:
        present = [(blob, blob.change_memory(self._copies[id(blob)])) for blob in params if id(blob) in self._copies]
        try:
            yield
        finally:
            for blob, memory in present:
                blob.change_memory(memory)

    def _at(self, blob: Blob) -> Blob:
        """The stand-in for one of the net's blobs; that of a source's top holds a copy of what the pass read."""
        if id(blob) not in self._scratch:
            self.before_reshape()
            place = next(i for i, each in enumerate(self._blobs) if each is blob)
            made = self._scratch[id(blob)] = Blob((self._shapes or ())[place], blob.dtype, zeros=blob.zeros)
            if id(blob) in self._sources:
                made.bind_data(self._copy(blob))
        return self._scratch[id(blob)]
