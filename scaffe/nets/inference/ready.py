"""Layers in a row, run by calls of native code that were made ready for their blobs' memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from threading import get_ident
from typing import Protocol

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layout import same_memory
from scaffe.layers.kernels.plans import ReadyCalls
from scaffe.nets.net_layer import Node, all_bottoms

Step = tuple[Node, ReadyCalls]


class Run(Protocol):
    """A group of layers that one pass computes."""

    def bind(self) -> ReadyCalls | None:
        """The calls that compute it with its blobs where they are; None: it has none."""

    @property
    def blobs(self) -> Sequence[Blob]:
        """The blobs that these read and write."""

    @property
    def is_settled(self) -> bool:
        """Whether its bottom has the shape that it knows."""


class Ready:
    """The calls of some groups and layers in a row, and of those between them that have nothing to do while memory
    stays.

    Args:
        stop: index of the layer after the last.
        blobs: of all the layers.
        steps: the calls of each group or layer in order, with its first layer; at least one.

    Attributes:
        stop: as given.
    """

    def __init__(self, stop: int, blobs: Sequence[Blob], steps: Sequence[Step]) -> None:
        self.stop, self._blobs = stop, list({id(blob): blob for blob in blobs}.values())
        self._shapes, self._memory = [blob.shape for blob in self._blobs], [blob.memory for blob in self._blobs]
        self._nodes = [node for node, calls in steps for _ in range(len(calls))]
        first, *others = (calls for _, calls in steps)
        self._calls: ReadyCalls = sum(others, start=first)

    def suits(self) -> bool:
        """Whether blobs have the shapes for which the calls were made ready, and this is their thread."""
        return self._calls.suit() and [blob.shape for blob in self._blobs] == self._shapes

    def fits(self) -> bool:
        """Whether blobs lie where they did when the calls were made ready."""
        return all(_is_same(blob.memory, memory) for blob, memory in zip(self._blobs, self._memory, strict=True))

    def run(self) -> None:
        """Compute. Raises UserError: a call failed; it names the layer."""
        n_done = self._calls.run()
        if n_done < len(self._nodes):
            with self._nodes[n_done].named():
                self._calls.fail()


class ReadyLayers:
    """Finds layers of a net whose calls are ready, or can be made so; for passes before which nothing has changed.

    Args:
        nodes: the net's layers.
        runs: index of the first layer of each group → the group.
        covered: indices of all groups' layers.
        fused: from the index of a layer that is in no group to those that run in its pass.
        ends: indices of layers before which what to do next is decided anew in each pass.
        plain: indices of layers that are never ready.
    """

    def __init__(self, nodes: Sequence[Node], runs: Mapping[int, Run], covered: Collection[int],
                 fused: Callable[[int], range], ends: Collection[int], plain: Collection[int] = ()) -> None:
        self._nodes, self._runs, self._covered, self._fused, self._ends = nodes, runs, covered, fused, ends
        self._plain = plain
        self._found: dict[int, Ready | None] = {}  # by the first layer
        self._thread, self._makes = 0, False

    def begin(self, is_known: bool) -> None:
        """Begin a pass; ``is_known``: no shape and no parameter has changed since the last.

        Calls are made ready for the second pass of a thread in a row: that takes as long as some passes gain.
        """
        self._makes, self._thread = bool(self._runs) and self._thread == get_ident(), get_ident()
        if not is_known:
            self.forget()

    def forget(self) -> None:
        """Something has changed: nothing is ready, or made so, in this pass."""
        self._found.clear()
        self._makes = False

    def at(self, index: int, done: Collection[int]) -> Ready | None:
        """The calls of the layers from this one on, if they fit; ``done``: indices of layers that run otherwise."""
        if self._makes and index not in self._found:
            made = self._make(index, done)
            if self._makes:
                self._found[index] = made
        found = self._found.get(index)
        if found is not None and not found.suits():
            self.forget()
            return None
        if found is not None and not found.fits():  # nor may it in the next passes
            found = self._found[index] = None
        return found

    def _make(self, first: int, done: Collection[int]) -> Ready | None:
        """The calls of the layers up to one that needs the interpreter; None: that is the first."""
        steps: list[Step] = []
        blobs: list[Blob] = []
        index = first
        while index < len(self._nodes) and index not in done and (index == first or index not in self._ends):
            members = range(index, index + 1) if index in self._covered else self._fused(index)
            if not all(self._is_settled(i) for i in members):
                self.forget()
                return None
            is_plain = any(i in self._plain for i in members)
            made = None if is_plain else self._bind(index, [self._nodes[i] for i in members])
            if made is None:
                break
            calls, own = made
            steps += [(self._nodes[index], each) for each in calls]
            blobs += own
            index = members.stop
        return Ready(index, blobs, steps) if steps else None

    def _bind(self, index: int, nodes: Sequence[Node]) -> tuple[Sequence[ReadyCalls], Sequence[Blob]] | None:
        """The calls of a group or layer, which are none where there is nothing to do, and the blobs whose memory they
        know; None: it needs the interpreter. ``nodes``: those that run in its pass."""
        if index in self._runs:
            run = self._runs[index]
            calls = run.bind()
            return None if calls is None else ([calls], run.blobs)
        if index in self._covered:
            return [], []
        node, blobs = nodes[0], [blob for each in nodes for blob in (*each.bottoms, *each.tops, *each.layer.blobs)]
        if node.is_source or any(any(each.loss_weights) for each in nodes):
            return None
        with node.named():
            if node.layer.idle_in_place:
                if not node.layer.shares_data and any(top is not node.bottoms[0] for top in node.tops):
                    return None  # it copies: what it would write over is still to be read
                node.layer.forward(node.bottoms, node.tops)
                is_idle = all(_is_same(top.memory, node.bottoms[0].memory) for top in node.tops)
                return ([], blobs) if is_idle else None
            calls = node.layer.bind(all_bottoms(nodes), node.tops, len(nodes) > 1)
        return None if calls is None else ([calls], blobs)

    def _is_settled(self, index: int) -> bool:
        """Whether the layer has seen the shapes of its bottoms: what brings data in may change its own in any pass."""
        if index in self._runs:
            return self._runs[index].is_settled
        return index in self._covered or self._nodes[index].is_settled


def _is_same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b or (a is not None and b is not None and same_memory(a, b))
