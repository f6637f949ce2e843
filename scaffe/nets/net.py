"""A net that runs: forward and backward over any range of layers, with hooks at every layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from scaffe.errors import UserError
from scaffe.jit.cache import compiling_seconds
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.nets.flat_params import FlatParams
from scaffe.nets.net_layer import LossShares, Node, Parts, all_bottoms, by_name
from scaffe.nets.steps import Steps

Hook = Callable[[int], None]


class Tier:
    """Sees to it that what a step uses is in memory. ``Net.steps`` has the steps' numbers.

    Layers that run in one pass have all their ``before`` and ``recompute`` before it, and all their ``after`` after it.
    """

    def before(self, step: int) -> None:
        """Just before a step: see to it that what it uses is there, or on its way."""

    def place(self, step: int) -> None:
        """Have blobs be where a step has them. Nothing is moved."""

    def recompute(self, step: int) -> None:
        """Between that and the step: compute again what it uses, by work of the kind that the step itself is."""

    def ended(self, step: int) -> None:
        """Right after a step, or what is recorded of it: its own work is done, or queued."""

    def after(self, step: int) -> None:
        """Right after a step: see to it that what is no longer used leaves, and whatever else follows."""

    def close(self) -> None:
        """Let go of everything."""


class Net:
    """A built net. ``scaffe.nets.build.build_net`` makes one from a NetParameter.

    Attributes:
        before_forward, after_forward, before_backward, after_backward: hooks called with the layer's index.
        unfused: set it to run every layer by itself, if the blobs between fused layers may be read.
        passed_diffs: by id, blobs whose diff shares its memory with others, since a sum passes it on, or a Split adds
            to it; the value is the index below which an in-place layer must not write it.
        sharers: for a test net, pairs of its parameters' blobs, of which the first uses the second one's memory.
        own_blobs: for a test net, the parameters that the training net lacks, each once.
        steps: numbers of what runs one after another; set it to have backward of layers that can be divided run in two.
        parts: where ranks share the net's layers: what of them is here; None: everything.
        shares: this rank's share of a batch that ranks share unevenly.
        data_seconds: seconds spent so far in data layers, without compiling.
        span: name → a with-block around a layer's pass, "forward conv1", for profilers.
        shows_layers: whether passes run layer by layer for their sake.
    """

    def __init__(self, name: str, context: Context, nodes: list[Node], blobs: dict[str, Blob],
                 params: FlatParams) -> None:
        self.name, self.context, self.nodes, self.blobs, self.params = name, context, nodes, blobs, params
        self.before_forward: list[Hook] = []
        self.after_forward: list[Hook] = []
        self.before_backward: list[Hook] = []
        self.after_backward: list[Hook] = []
        self.tiers: list[Tier] = []
        self.unfused, self.data_seconds = False, 0.0
        self.span: Callable[[str], AbstractContextManager[Any]] = nullcontext
        self.shows_layers = False
        self.passed_diffs: dict[int, int] = {}
        self.sharers: list[tuple[Blob, Blob]] = []
        self.own_blobs: list[Blob] = []
        self.steps = Steps(len(nodes))
        self.parts: Parts | None = None
        self.shares = LossShares()
        self.input_names = [t for n in nodes if n.param.type == "Input" for t in n.top_names]
        self.output_names = sorted(_unused(nodes))

    def forward(self, start: int = 0, end: int | None = None) -> Any:
        """Run forward from layer ``start`` up to ``end``, inclusive (None: the last). Returns the sum of their weighted
        losses: a float, or on a device a number that ``float`` waits for. Raises UserError, a layer's error, with the
        layer's name."""
        last = len(self.nodes) - 1 if end is None else end
        loss, index = 0.0, start
        with self.context.kernels.deferring(not self.tiers):  # tiers move what layers have written
            while index <= last:
                loss, index = self.forward_once(index, last, loss)
        return self.context.kernels.scalar(loss)

    def forward_once(self, index: int, last: int, loss: Any) -> tuple[Any, int]:
        """Run layer ``index`` forward, and the layers up to ``last`` that are fused to it. Returns ``loss`` plus their
        weighted losses, and the index after the last layer that ran."""
        fused = self.fused(index, last)
        self._unfuse(index)
        read = [i for i in fused if i == index or self.nodes[i].layer.blobs]  # the pass reads their parameters
        self._before_steps(fused)
        for i in read:
            for hook in self.before_forward:
                hook(i)
        self._forward_fused([self.nodes[i] for i in fused])
        for i in fused:
            for hook in self.before_forward if i not in read else ():
                hook(i)
            if any(self.nodes[i].loss_weights):
                loss = self.nodes[i].loss(loss)
            self._call(self.after_forward, i)
        self._after_steps(fused)
        return loss, fused.stop

    def forward_again(self, index: int) -> None:
        """Compute the tops of layer ``index``, and of those fused to it, as the last forward did, from the same
        bottoms. Their layers must be ``repeatable``. Nothing else changes, and no hook is called."""
        nodes = [self.nodes[i] for i in self.fused(index, len(self.nodes) - 1)]
        with nodes[0].named():
            nodes[0].layer.forward_again(all_bottoms(nodes), nodes[0].tops, len(nodes) > 1)

    def _call(self, hooks: Sequence[Hook], index: int) -> None:
        """Call hooks that look at what layers have written."""
        if hooks:
            self.context.kernels.finish_deferred()
        for hook in hooks:
            hook(index)

    def _before_steps(self, steps: Sequence[int]) -> None:
        for tier in self.tiers:
            for step in steps:
                tier.before(step)
            for step in steps:
                tier.recompute(step)

    def _after_steps(self, steps: Sequence[int]) -> None:
        for tier in self.tiers:
            for step in steps:
                tier.after(step)

    def check_values(self) -> None:
        """Raise UserError for wrong values, such as a label out of range, that a device's kernels have met."""
        for node in self.nodes:
            with node.named():
                node.layer.check_values()

    def fused(self, index: int, last: int) -> range:
        """The layers that run with layer ``index``: also those fused to it, unless the blobs between may be read."""
        stop = index + 1 + self.nodes[index].n_fused
        return range(index, index + 1 if self.unfused or self.after_forward or stop > last + 1 else stop)

    def _unfuse(self, index: int) -> None:
        """Let a layer whose last forward ran fused run backward by itself: write what that pass did not keep."""
        node = self.nodes[index]
        first = self.nodes[index - node.fused_offset]
        if 0 < node.fused_offset <= first.layer.n_fused_back and first.ran_fused:
            first.layer.unfuse()
            first.ran_fused = False

    def _forward_fused(self, nodes: list[Node]) -> None:
        node, layer = nodes[0], nodes[0].layer
        for each in nodes:
            with each.named():
                each.reshape()
        node.ran_fused = len(nodes) > 1 and layer.n_fused_back > 0
        started = time.perf_counter()
        with node.named(), self.span(f"forward {node.name}"):
            (layer.forward_fused if len(nodes) > 1 else layer.forward)(all_bottoms(nodes), node.tops)
        for each in nodes[1:]:
            each.layer.keep(each.tops)
        if node.is_source:
            ended = time.perf_counter()
            self.data_seconds += ended - started - compiling_seconds(started, ended)

    def backward(self, start: int | None = None, end: int = 0) -> None:
        """Run backward from layer ``start`` (None: the last) down to ``end``, inclusive. Raises UserError, a layer's
        error, with the layer's name; also if a blob was reshaped since forward."""
        first = len(self.nodes) - 1 if start is None else start
        with self.context.kernels.deferring(not self.tiers):
            self._backward(first, end)

    def _backward(self, first: int, end: int) -> None:
        done = range(0)
        for index in range(first, end - 1, -1):
            steps = self.steps.backward(index)
            self._before_steps(steps[:1])
            for hook in self.before_backward:
                hook(index)
            if len(steps) > 1:
                self._backward_params(index)
                self._after_steps(steps[:1])
                self._before_steps(steps[1:])
            if index not in done:
                with self.span(f"backward {self.nodes[index].name}"):
                    done = self._backward_fused(index, end)
            self._after_steps(steps[-1:])
            self.params.write_cleared_diffs(index)
            self._call(self.after_backward, index)

    def _backward_fused(self, index: int, end: int) -> range:
        """Run a layer's backward, in one pass with the layers that ran forward with it. Returns the layers that ran."""
        node, first = self.nodes[index], self.nodes[index - self.nodes[index].fused_offset]
        fused = range(index - node.fused_offset, index + 1)
        if first.ran_fused and node.fused_offset == first.layer.n_fused_back and fused.start >= end and all(
                self.nodes[i].needs_backward for i in fused[1:]):
            wanted = first.propagate_down if first.needs_backward else [False] * len(first.bottoms)
            with first.named():
                for i in fused:
                    self.nodes[i].expect_shapes()
                first.layer.backward_fused(first.tops, wanted, first.bottoms)
            return fused
        self._unfuse(index)
        ran, node.ran_before = node.ran_before, False
        if node.needs_backward and not ran:
            self._own_diffs(index)
            with node.named():
                node.expect_shapes()
                alone = index in self.steps.divided or index in self.steps.behind
                run = node.layer.backward_bottoms if alone else node.layer.backward
                run(node.tops, node.propagate_down, node.bottoms)
            if node.includes is not None:
                node.includes.ran_before = True
        return range(index, index + 1)

    def _backward_params(self, index: int) -> None:
        node = self.nodes[index]
        with node.named():
            node.expect_shapes()
            node.layer.backward_params(node.tops, node.bottoms)

    def _own_diffs(self, index: int) -> None:
        """Give a blob memory of its own before an in-place layer overwrites a diff that others still read."""
        node = self.nodes[index]
        for blob in node.bottoms:
            if index < self.passed_diffs.get(id(blob), 0) and any(blob is top for top in node.tops):
                blob.bind_diff(blob.diff_flat.copy())
                del self.passed_diffs[id(blob)]

    def forward_backward(self) -> Any:
        loss = self.forward()
        self.backward()
        return loss

    def reshape(self) -> None:
        """Propagate changed input shapes through the whole net. Raises UserError if a layer does not accept one."""
        for node in self.nodes:
            with node.named():
                node.reshape()

    def scale_loss(self, factor: Any) -> None:
        """Multiply all gradients by a factor from now on, a number or an array () on the device as it is now; the
        losses that ``forward`` returns are not scaled."""
        for node in self.nodes:
            node.loss_scale = factor
            node.set_weights()

    def clear_param_diffs(self) -> None:
        self.params.clear_diffs()

    def outputs(self) -> list[tuple[str, Blob, float]]:
        """(name, blob, loss weight) of each output, sorted by name; the weight is 0 for an output that is no loss."""
        weights = {t: w for n in self.nodes for t, w in zip(n.top_names, n.loss_weights, strict=False)}
        return [(name, self.blobs[name], weights.get(name, 0.0)) for name in self.output_names]

    def node(self, name: str) -> Node:
        """The layer of that name. Raises KeyError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def note_written(self) -> None:
        """Count a write to all parameters, as they may have changed or are about to."""
        for node in self.nodes:
            for blob in node.layer.blobs:
                blob.writes.note()

    def share_trained_layers(self, other: Net) -> None:
        """Use another net's parameters in the layers of the same names, as a test net uses the training net's.
        Raises UserError if parameters of one layer have different shapes in the two nets."""
        for node, mine, blob in self._named_alike(other):
            if mine.shape != blob.shape:
                raise UserError(f"layer {node.name!r}: its parameters have shape {mine.shape} in the test net, "
                                f"{blob.shape} in the training net")
            mine.share_data(blob)
        for mine, blob in self.sharers:
            mine.share_data(blob)

    def trained_blobs(self, other: Net) -> dict[int, Blob]:
        """By id of a parameter's blob, the other net's blob whose memory it uses; blobs with memory of their own are
        left out."""
        found = {id(mine): blob for _, mine, blob in self._named_alike(other)}
        owners = {id(mine): id(blob) for mine, blob in self.sharers}
        keys = {id(blob): owners.get(id(blob), id(blob)) for node in self.nodes for blob in node.layer.blobs}
        return {key: found[owner] for key, owner in keys.items() if owner in found}

    def _named_alike(self, other: Net) -> Iterator[tuple[Node, Blob, Blob]]:
        theirs = by_name(other.nodes)
        for name, ours in by_name(self.nodes).items():
            for node, their in zip(ours, theirs.get(name, ()), strict=False):
                yield from ((node, mine, blob) for mine, blob in zip(node.layer.blobs, their.layer.blobs, strict=False))

    def close(self) -> None:
        """Stop the readers of data layers, and release what memory plans hold outside of memory."""
        for tier in self.tiers:
            tier.close()
        for node in self.nodes:
            close = getattr(node.layer, "close", None)
            if close:
                close()


def _unused(nodes: list[Node]) -> set[str]:
    """Names of the tops, among those that the prototxt names, that no later layer reads."""
    open_tops: set[str] = set()
    for node in nodes:
        open_tops -= set(node.bottom_names)
        open_tops |= set(node.param.top)
    return open_tops
