"""Groups of layers in a row, run by calls of native code that were made ready for their blobs' memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from threading import get_ident
from typing import Protocol

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layout import same_memory
from scaffe.layers.kernels.plans import ReadyCalls
from scaffe.layers.reshaping.split import Split
from scaffe.nets.net_layer import Node

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
    """The calls of some groups, and of the Splits between them, which have nothing to do while memory stays.

    Args:
        stop: index of the layer after the last.
        blobs: of all the layers.
        steps: the calls of each group in order, with its first layer; at least one.

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
    """

    def __init__(self, nodes: Sequence[Node], runs: Mapping[int, Run], covered: Collection[int]) -> None:
        self._nodes, self._runs, self._covered = nodes, runs, covered
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
        while index < len(self._nodes) and index not in done:
            node = self._nodes[index]
            if not self._is_settled(index):
                self.forget()
                return None
            if index in self._runs:
                calls = self._runs[index].bind()
                if calls is None:
                    break
                steps.append((node, calls))
                blobs += self._runs[index].blobs
            elif _is_split(node):
                node.layer.forward(node.bottoms, node.tops)
                blobs += [*node.bottoms, *node.tops]
            elif index not in self._covered:
                break
            index += 1
        return Ready(index, blobs, steps) if steps else None

    def _is_settled(self, index: int) -> bool:
        """Whether the layer has seen the shapes of its bottoms: what brings data in may change its own in any pass."""
        node = self._nodes[index]
        if index in self._runs:
            return self._runs[index].is_settled
        return not _is_split(node) or all(top.shape == node.bottoms[0].shape for top in node.tops)


def _is_split(node: Node) -> bool:
    return isinstance(node.layer, Split) and not any(node.loss_weights)


def _is_same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b or (a is not None and b is not None and same_memory(a, b))
