"""Runs consecutive layers by native calls that were prepared once, with the addresses of their blobs as arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from threading import get_ident

import numpy as np

from scaffe.layers.base.axes import same_memory
from scaffe.layers.base.blob import Blob
from scaffe.layers.kernels.plans import PreparedCalls
from scaffe.nets.inference.fused_convolution import FusedConvolution
from scaffe.nets.net_layer import Node, all_bottoms

Step = tuple[Node, PreparedCalls]


class PreparedSequence:
    """The prepared calls of consecutive layers. Layers that do nothing while memory stays the same have no call.
    ``steps``: the calls of each fused convolution or layer in order, with its first layer; at least one."""

    def __init__(self, stop: int, blobs: Sequence[Blob], steps: Sequence[Step]) -> None:
        self.stop, self._blobs = stop, list({id(blob): blob for blob in blobs}.values())
        self._shapes, self.memory = [blob.shape for blob in self._blobs], [(blob, blob.memory) for blob in self._blobs]
        self._nodes = [node for node, calls in steps for _ in range(len(calls))]
        first, *others = (calls for _, calls in steps)
        self._calls: PreparedCalls = sum(others, start=first)

    def is_valid(self) -> bool:
        """Whether the blobs have the shapes for which the calls were prepared, and this is the thread that did."""
        return self._calls.is_valid() and [blob.shape for blob in self._blobs] == self._shapes

    def run(self) -> None:
        n_done = self._calls.run()
        if n_done < len(self._nodes):
            with self._nodes[n_done].named():
                self._calls.raise_error()


class PreparedLayers:
    """Prepares the calls of a net's layers, and finds them again in passes before which nothing has changed.

    Args:
        convolutions: fused convolutions by the index of their first layer.
        fused: gives, for the index of another layer, the range of layers that run in its pass.
        ends: indices of layers at which a sequence must end, as each pass decides anew how they run.
        plain: indices of layers that are never prepared.
    """

    def __init__(self, nodes: Sequence[Node], convolutions: Mapping[int, FusedConvolution], covered: Collection[int],
                 fused: Callable[[int], range], ends: Collection[int], plain: Collection[int] = ()) -> None:
        self._nodes, self._convolutions, self._covered, self._fused = nodes, convolutions, covered, fused
        self._ends, self._plain = ends, plain
        self._found: dict[int, PreparedSequence | None] = {}  # by the first layer
        self._thread, self._makes = 0, False

    def begin(self, is_unchanged: bool) -> None:
        """Begin a pass. ``is_unchanged``: no shape and no parameter has changed since the last one.

        Calls are prepared in a thread's second consecutive pass: preparing takes as long as it saves in several passes.
        """
        self._makes, self._thread = bool(self._convolutions) and self._thread == get_ident(), get_ident()
        if not is_unchanged:
            self.forget()

    def forget(self) -> None:
        self._found.clear()
        self._makes = False

    def at(self, index: int, done: Collection[int]) -> PreparedSequence | None:
        """The prepared calls of the layers from ``index`` on, or None. ``done``: indices of layers that have run."""
        if self._makes and index not in self._found:
            made = self._make(index, done)
            if self._makes:
                self._found[index] = made
        found = self._found.get(index)
        if found is not None and not found.is_valid():
            self.forget()
            return None
        if found is not None and not all(_is_same(blob.memory, memory) for blob, memory in found.memory):
            # memory that has moved once may do so again
            found = self._found[index] = None
        return found

    def _make(self, first: int, done: Collection[int]) -> PreparedSequence | None:
        """The calls of the layers from ``first`` up to one that needs the interpreter; None if that is the first."""
        steps: list[Step] = []
        blobs: list[Blob] = []
        index = first
        while index < len(self._nodes) and index not in done and (index == first or index not in self._ends):
            members = range(index, index + 1) if index in self._covered else self._fused(index)
            if not all(self._has_current_shapes(i) for i in members):
                self.forget()
                return None
            is_plain = any(i in self._plain for i in members)
            made = None if is_plain else self._prepare_calls(index, [self._nodes[i] for i in members])
            if made is None:
                break
            calls, own = made
            steps += [(self._nodes[index], each) for each in calls]
            blobs += own
            index = members.stop
        return PreparedSequence(index, blobs, steps) if steps else None

    def _prepare_calls(self, index: int,
                       nodes: Sequence[Node]) -> tuple[Sequence[PreparedCalls], Sequence[Blob]] | None:
        """The calls of a fused convolution or a layer, empty where there is nothing to do, and the blobs whose
        addresses they hold; None if it needs the interpreter. ``nodes``: the layers that run in its pass."""
        if index in self._convolutions:
            run = self._convolutions[index]
            calls = run.prepare_calls()
            return None if calls is None else ([calls], run.blobs)
        if index in self._covered:
            return [], []
        node, blobs = nodes[0], [blob for each in nodes for blob in (*each.bottoms, *each.tops, *each.layer.blobs)]
        if node.is_source or any(any(each.loss_weights) for each in nodes):
            return None
        with node.named():
            if node.layer.idle_in_place:
                if not node.layer.shares_data and any(top is not node.bottoms[0] for top in node.tops):
                    return None  # it copies; running it now would overwrite data that are still to be read
                node.layer.forward(node.bottoms, node.tops)
                is_idle = all(_is_same(top.memory, node.bottoms[0].memory) for top in node.tops)
                return ([], blobs) if is_idle else None
            calls = node.layer.prepare_calls(all_bottoms(nodes), node.tops, len(nodes) > 1)
        return None if calls is None else ([calls], blobs)

    def _has_current_shapes(self, index: int) -> bool:
        """Whether the layer was reshaped for its bottoms' shapes, which a data layer may change in any pass."""
        if index in self._convolutions:
            return self._convolutions[index].has_current_shapes
        return index in self._covered or self._nodes[index].has_current_shapes


def _is_same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b or (a is not None and b is not None and same_memory(a, b))
