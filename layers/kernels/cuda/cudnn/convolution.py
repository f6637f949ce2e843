"""Convolutions, with bias and ReLU fused, as cuDNN graphs. One spatial axis is treated as two, the first of size 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

from scaffe.layers.kernels.cuda import deferred
from scaffe.layers.kernels.cuda.arena import Part, arena
from scaffe.layers.kernels.cuda.channels import add_bias, add_gradients
from scaffe.layers.kernels.cuda.cublas import precision
from scaffe.layers.kernels.cuda.cudnn import graphs, plans
from scaffe.layers.kernels.cuda.cudnn.graphs import Built, Sheet
from scaffe.layers.kernels.cuda.cudnn.summed_gradient import SummedGradient, add_behind
from scaffe.layers.kernels.cuda.cudnn.timing import operands
from scaffe.layers.kernels.cuda.products import Convolution as Products
from scaffe.layers.kernels.cuda.products import Weights
from scaffe.layers.kernels.cuda.thinned import add_thinned, keep_places
from scaffe.layers.kernels.specs import ConvPasses, ConvSpec, Ints, Thinned

X, W, Y, BIAS = 1, 2, 3, 4  # the tensors' numbers in every graph; gradients have their values' numbers
FORWARD, BY_DATA, BY_WEIGHTS = "conv_fprop", "conv_dgrad", "conv_wgrad"


@dataclass(frozen=True)
class ConvKey:
    """The ``graphs.Key`` of a convolution's plan: FORWARD, BY_DATA or BY_WEIGHTS of a geometry of two or three spatial
    axes, with TF32's products of float32 if ``tf32``, a bias, and a ReLU of that slope (None: none)."""

    kind: str
    spec: ConvSpec
    tf32: bool
    bias: bool = False
    slope: float | None = None
    constants: ClassVar[Mapping[int, np.ndarray]] = {}

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.spec.dtype)

    @property
    def compiles(self) -> bool:
        """See Key. Bias and ReLU on half types have no other engines; plain convolutions have many."""
        return self.bias or self.slope is not None

    @property
    def tensors(self) -> Mapping[int, tuple[Ints, np.dtype]]:
        """See Key. For half types, sums are float32 inside, but cuDNN 9 returns results only in the half type."""
        spec = self.spec
        shapes = {X: spec.in_shape, W: spec.weight_shape, Y: spec.out_shape}
        found = {number: (shape, self.dtype) for number, shape in shapes.items()}
        if self.bias:
            found[BIAS] = (1, spec.n_output, *(1,) * len(spec.kernel)), np.dtype(np.float32)
        return found

    def draw(self, sheet: Sheet) -> None:
        spec, graph = self.spec, sheet.graph
        window: dict[str, Any] = {"padding": list(spec.pad), "stride": list(spec.stride),
                                  "dilation": list(spec.dilation)}
        if self.kind == FORWARD:
            result, number = graph.conv_fprop(sheet.tensor(X), sheet.tensor(W), **window), Y
        elif self.kind == BY_DATA:
            result, number = graph.conv_dgrad(sheet.tensor(Y), sheet.tensor(W), **window), X
        else:
            result, number = graph.conv_wgrad(sheet.tensor(X), sheet.tensor(Y), **window), W
        if self.bias:
            result = graph.bias(result, sheet.tensor(BIAS))
        if self.slope is not None:
            result = graph.relu(result, negative_slope=self.slope) if self.slope else graph.relu(result)
        sheet.give(result, number)


def widened(spec: ConvSpec) -> ConvSpec:
    """A geometry of one spatial axis as one of two, the first of size 1; others unchanged."""
    if len(spec.kernel) != 1:
        return spec
    n, c, length = spec.in_shape
    return replace(spec, in_shape=(n, c, 1, length), kernel=(1, *spec.kernel), stride=(1, *spec.stride),
                   pad=(0, *spec.pad), dilation=(1, *spec.dilation))


N_HALVED, LEAST_ROWS = 3, 1 << 16
"""How often a batch is halved at most, unless so many places of outputs, which occupy a large card, are left."""


def halves(key: ConvKey) -> list[ConvKey]:
    """The keys of the same pass for a half of the batch, a quarter, ..., whose images begin where kernels load 16
    bytes."""
    found, spec, n_images = list[ConvKey](), key.spec, key.spec.in_shape[0]
    an_image = tuple(prod(shape[1:]) * spec.dtype.itemsize for shape in (spec.in_shape, spec.out_shape))
    while n_images % 2 == 0:
        n_images //= 2
        is_short = len(found) >= N_HALVED and n_images * prod(spec.out_spatial) < LEAST_ROWS
        if is_short or any(n_images * n_bytes % 16 for n_bytes in an_image):
            break
        found.append(replace(key, spec=replace(spec, in_shape=(n_images, *spec.in_shape[1:]))))
    return found


class Convolution:
    """The three passes of a geometry of one to three spatial axes, on channels-last arrays and weights in Caffe's
    order. The graph of each is built before its first run, or by ``scratch``; with the setting of TF32 that was current
    when this was made."""

    def __init__(self, spec: ConvSpec) -> None:
        self.spec, self._dtype, self._tf32 = spec, np.dtype(spec.dtype), precision.tf32
        self._weights = Weights(spec.weight_shape, self._dtype)
        self._turns = prod(spec.kernel) > 1 and spec.in_shape[1] // spec.group > 1
        self._gradient: Part = (spec.weight_shape, self._dtype)
        self._forwards: dict[tuple[bool, float | None], tuple[Built | None, bool]] = {}

    def scratch(self, passes: ConvPasses) -> list[tuple[Part, ...]]:
        """What each of these passes takes of the arena at once."""
        found = list[tuple[Built | None, Part]]()
        if passes.forward:
            found.append((self.forward_graph(passes.bias, passes.relu_slope)[0], self._weights.part))
        if passes.by_data:
            found.append((self._data, self._weights.part))
        if passes.by_weights:
            found.append((self._by_weights, self._gradient))
        own = [(part, _workspace(graph)) for graph, part in found if graph is not None]
        return [*own, *(self._products.scratch(passes) if len(own) < len(found) else ())]

    def _key(self, kind: str, bias: bool = False, slope: float | None = None) -> ConvKey:
        return ConvKey(kind, widened(replace(self.spec, bias=False)), self._tf32, bias, slope)

    def _build(self, kind: str, bias: bool = False, slope: float | None = None) -> Built | None:
        key = self._key(kind, bias, slope)
        return plans.build(key, *halves(key))

    @cached_property
    def _data(self) -> Built | None:
        return self._build(BY_DATA)

    @cached_property
    def _by_weights(self) -> Built | None:
        return self._build(BY_WEIGHTS)

    def forward_graph(self, bias: bool, relu_slope: float | None) -> tuple[Built | None, bool]:
        """The forward graph for a call with or without bias and ReLU, and whether the graph includes them.

        cuDNN fuses them only on tensor cores, and for half types by few engines. Without a fused graph, or where that
        takes longer, a kernel of our own adds bias and ReLU. The graph is None if cuDNN has none at all.
        """
        wanted = (bias, relu_slope)
        if wanted not in self._forwards:
            self._forwards[wanted] = self._chosen(bias, relu_slope)
        return self._forwards[wanted]

    def _chosen(self, bias: bool, slope: float | None) -> tuple[Built | None, bool]:
        plain = self._build(FORWARD)
        if not bias and slope is None:
            return plain, True
        fused = self._build(FORWARD, bias, slope)
        if fused is None or plain is None:
            return fused or plain, fused is not None
        is_whole = self._is_better(fused, plain, self._key(FORWARD, bias, slope))
        return (fused if is_whole else plain), is_whole

    def _is_better(self, fused: Built, plain: Built, whole: ConvKey) -> bool:
        """Whether ``choose`` takes the fused graph, or the plain one with our own kernel behind it. ``whole``: the key
        of the first, for the whole batch."""
        n_bytes = max(fused.n_workspace_bytes, plain.n_workspace_bytes)
        made = cache(lambda: operands(whole, n_bytes))  # only where it is timed: recordings come here, too

        def in_two() -> None:
            arrays, workspace = made()
            self._run(plain, {number: arrays[number] for number in (X, W, Y)}, workspace)
            bias = arrays[BIAS].reshape(-1) if BIAS in arrays else None
            add_bias(arrays[Y].reshape(-1, self.spec.n_output), bias, whole.slope)
        return plans.chosen_way(whole, {
            "one graph": plans.Way(lambda: self._run(fused, *made()), fused.n_workspace_bytes),
            "two steps": plans.Way(in_two, plain.n_workspace_bytes)}) == "one graph"

    def _run(self, graph: Built, arrays: Mapping[int, Any], workspace: Any) -> None:
        for part in self._micro_batches(graph, arrays):
            graph.run(part, workspace)

    def _micro_batches(self, graph: Built, arrays: Mapping[int, Any]) -> Iterator[Mapping[int, Any]]:
        """The arrays, with the images that the graph computes at a time."""
        divided = (X, Y) if graph.n_parts > 1 else ()
        for number in range(graph.n_parts):
            yield {tensor: _part(array.reshape(-1), number, graph.n_parts) if tensor in divided else array
                   for tensor, array in arrays.items()}

    @cached_property
    def _products(self) -> Products:
        return Products(self.spec)

    def forward(self, x: Any, w: Any, b: Any, y: Any, relu_slope: float | None = None) -> None:
        built, is_whole = self.forward_graph(b is not None, relu_slope)
        if built is None:
            self._products.forward(x, w, b, y, relu_slope)
            return
        kernels, workspace = arena.take(self._weights.part, _workspace(built))
        arrays = {X: x, W: self._weights.laid_out(w, kernels), Y: y}
        if is_whole and b is not None:
            arrays[BIAS] = b
        self._run(built, arrays, workspace)
        if not is_whole:
            add_bias(y.reshape(-1, self.spec.n_output), b, relu_slope)

    def backward_data(self, gy: Any, w: Any, gx: Any) -> None:
        if self._data is None:
            self._products.backward_data(gy, w, gx)
            return
        kernels, workspace = arena.take(self._weights.part, _workspace(self._data))
        self._run(self._data, {Y: gy, W: self._weights.laid_out(w, kernels), X: gx}, workspace)

    def backward_data_sum(self, gy: Any, w: Any, gx: Any, addends: Sequence[Any], signs: Any = None) -> None:
        """See SummingPlan. Half types are rounded once, or twice without a graph for it."""
        built = None if self._data is None else (
            self._sums.prepare_bits(len(addends)) if _are_bits(signs)
            else self._sums.prepare(len(addends), signs is not None))
        if built is None:
            self.backward_data(gy, w, gx)
            add_behind(gx, addends, signs)
            return
        kernels, workspace = arena.take(self._weights.part, _workspace(built))
        self._sums.run(built, gy, self._weights.laid_out(w, kernels), gx, addends, signs, workspace)

    def add_thinned(self, gx: Any, addend: Any, thinned: Thinned, signs: Any = None) -> None:
        """See SummingPlan."""
        add_thinned(gx, addend, thinned, signs)

    def keep_places(self, x: Any, thinned: Thinned) -> Any:
        """See SummingPlan."""
        return keep_places(x, thinned, self._dtype)

    def prepare_sum(self, n_addends: int, masks: bool) -> None:
        """See SummingPlan."""
        if self._data is not None:
            self._sums.prepare(n_addends, masks)

    def takes_sign_bits(self, n_addends: int) -> bool:
        """See SummingPlan."""
        return self._data is not None and self._sums.prepare_bits(n_addends) is not None

    @cached_property
    def _sums(self) -> SummedGradient:
        """For weights in the kernels' order, as they are where time is taken."""
        n_plain_bytes = 0 if self._data is None else self._data.n_workspace_bytes
        return SummedGradient(widened(replace(self.spec, bias=False)), self._tf32, self._by_data, n_plain_bytes)

    def _by_data(self, gy: Any, kernels: Any, gx: Any, workspace: Any) -> None:
        if self._data is not None:
            self._run(self._data, {Y: gy, W: kernels, X: gx}, workspace)

    def backward_weights(self, x: Any, gy: Any, gw: Any, gb: Any, overwrite: bool = False) -> None:
        if self._by_weights is None:
            self._products.backward_weights(x, gy, gw, gb, overwrite)
            return
        gradient, workspace = arena.take(self._gradient, _workspace(self._by_weights))
        for number, part in enumerate(self._micro_batches(self._by_weights, {X: x, Y: gy})):
            is_first = overwrite and not number
            direct = is_first and not self._turns and gw.dtype == self._dtype
            kept = None if direct else deferred.memory(self._gradient)
            target = gw if direct else gradient if kept is None else kept
            self._by_weights.run({**part, W: target}, workspace)
            if not direct:
                self._weights.bring_back(target, gw, is_first, waits=kept is not None)
        if gb is not None:
            add_gradients(gy.reshape(-1, self.spec.n_output), gb, overwrite)


def _workspace(graph: Built) -> Part:
    return graph.n_workspace_bytes, np.uint8


def _are_bits(signs: Any) -> bool:
    """Whether signs are sign bits, not data."""
    return signs is not None and signs.dtype == np.uint8


def _part(flat: Any, number: int, n_parts: int) -> Any:
    """One of several equal parts of a flat array; longer ones where it cannot be divided, which its graph refuses."""
    n_elems = -(-flat.size // n_parts)
    return flat[number * n_elems:(number + 1) * n_elems]


def convolution(spec: ConvSpec) -> Convolution | None:
    """The plan by cuDNN; None if cuDNN is missing or does not support the type or shape."""
    known = np.dtype(spec.dtype).name in graphs.TYPES and 1 <= len(spec.kernel) <= 3 and 0 not in spec.in_shape
    return Convolution(spec) if known and graphs.frontend() is not None else None
