"""Convolutions, with bias and ReLU fused, as cuDNN graphs. One spatial axis is treated as two, the first of size 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

from scaffe.layers.kernels.cuda import deferred
from scaffe.layers.kernels.cuda.arena import Part, arena
from scaffe.layers.kernels.cuda.channels import add_bias, add_gradients, parts_of
from scaffe.layers.kernels.cuda.cublas import precision
from scaffe.layers.kernels.cuda.cudnn import graphs, plans
from scaffe.layers.kernels.cuda.cudnn.graphs import Built, Sheet
from scaffe.layers.kernels.cuda.cudnn.summed_gradient import SummedGradient
from scaffe.layers.kernels.cuda.elementwise import add_up
from scaffe.layers.kernels.cuda.products import Convolution as Products
from scaffe.layers.kernels.cuda.products import Weights
from scaffe.layers.kernels.specs import ConvSpec, Ints

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


def key_of(kind: str, spec: ConvSpec, bias: bool = False, slope: float | None = None) -> ConvKey:
    """The key of a pass, with the current setting of TF32."""
    return ConvKey(kind, widened(replace(spec, bias=False)), precision.tf32, bias, slope)


class Convolution:
    """The three passes of a geometry of one to three spatial axes, on channels-last arrays and weights in Caffe's
    order."""

    def __init__(self, spec: ConvSpec) -> None:
        self.spec, self._dtype = spec, np.dtype(spec.dtype)
        self._weights = Weights(spec.weight_shape, self._dtype)
        self._turns = prod(spec.kernel) > 1 and spec.in_shape[1] // spec.group > 1
        self._gradient: Part = (spec.weight_shape, self._dtype)
        n_rows = spec.out_shape[0] * prod(spec.out_spatial)
        arena.reserve(parts_of(n_rows, spec.n_output, self._dtype))
        self._data = self._build(BY_DATA)
        self._by_weights = self._build(BY_WEIGHTS)
        self._forwards: dict[tuple[bool, float | None], tuple[Built | None, bool]] = {}

    def _build(self, kind: str, bias: bool = False, slope: float | None = None) -> Built | None:
        built = plans.build(key_of(kind, self.spec, bias, slope))
        if built is not None:
            arena.reserve((built.n_workspace_bytes, np.uint8), self._gradient if kind == BY_WEIGHTS
                          else self._weights.part)
        return built

    def prepare(self, bias: bool, relu_slope: float | None) -> tuple[Built | None, bool]:
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
        is_whole = self._is_faster(fused, plain, slope)
        return (fused if is_whole else plain), is_whole

    def _is_faster(self, fused: Built, plain: Built, slope: float | None) -> bool:
        """Whether the fused graph takes less time than the plain one with our own kernel behind it."""
        arrays, workspace = plans.operands(fused.key, max(fused.n_workspace_bytes, plain.n_workspace_bytes))
        rows, own = arrays[Y].reshape(-1, self.spec.n_output), {number: arrays[number] for number in (X, W, Y)}

        def in_two() -> None:
            plain.run(own, workspace)
            add_bias(rows, arrays[BIAS].reshape(-1) if BIAS in arrays else None, slope)
        return plans.fastest_way(fused.key, {"one graph": lambda: fused.run(arrays, workspace),
                                              "two steps": in_two}) == "one graph"

    @cached_property
    def _products(self) -> Products:
        return Products(self.spec)

    def forward(self, x: Any, w: Any, b: Any, y: Any, relu_slope: float | None = None) -> None:
        built, is_whole = self.prepare(b is not None, relu_slope)
        if built is None:
            self._products.forward(x, w, b, y, relu_slope)
            return
        kernels, workspace = arena.take(self._weights.part, (built.n_workspace_bytes, np.uint8))
        arrays = {X: x, W: self._weights.laid_out(w, kernels), Y: y}
        if is_whole and b is not None:
            arrays[BIAS] = b
        built.run(arrays, workspace)
        if not is_whole:
            add_bias(y.reshape(-1, self.spec.n_output), b, relu_slope)

    def backward_data(self, gy: Any, w: Any, gx: Any) -> None:
        if self._data is None:
            self._products.backward_data(gy, w, gx)
            return
        kernels, workspace = arena.take(self._weights.part, (self._data.n_workspace_bytes, np.uint8))
        self._data.run({Y: gy, W: self._weights.laid_out(w, kernels), X: gx}, workspace)

    def backward_data_sum(self, gy: Any, w: Any, gx: Any, addends: Sequence[Any], signs: Any = None) -> None:
        """See SummingPlan. Half types are rounded once, or twice without a graph for it."""
        built = None if self._data is None else self._sums.prepare(len(addends), signs is not None)
        if built is None:
            self.backward_data(gy, w, gx)
            add_up([gx, *addends], gx, signs)
            return
        kernels, workspace = arena.take(self._weights.part, (built.n_workspace_bytes, np.uint8))
        self._sums.run(built, gy, self._weights.laid_out(w, kernels), gx, addends, signs, workspace)

    @cached_property
    def _sums(self) -> SummedGradient:
        """For weights in the kernels' order, as they are where time is taken."""
        data, spec = self._data, widened(replace(self.spec, bias=False))

        def plain(gy: Any, kernels: Any, gx: Any) -> None:
            if data is not None:
                (workspace,) = arena.take((data.n_workspace_bytes, np.uint8))
                data.run({Y: gy, W: kernels, X: gx}, workspace)
        return SummedGradient(spec, precision.tf32, plain)

    def backward_weights(self, x: Any, gy: Any, gw: Any, gb: Any, overwrite: bool = False) -> None:
        if self._by_weights is None:
            self._products.backward_weights(x, gy, gw, gb, overwrite)
            return
        gradient, workspace = arena.take(self._gradient, (self._by_weights.n_workspace_bytes, np.uint8))
        direct = overwrite and not self._turns and gw.dtype == self._dtype
        kept = None if direct else deferred.memory(self._gradient)
        target = gw if direct else gradient if kept is None else kept
        self._by_weights.run({X: x, Y: gy, W: target}, workspace)
        if not direct:
            self._weights.bring_back(target, gw, overwrite, waits=kept is not None)
        if gb is not None:
            add_gradients(gy.reshape(-1, self.spec.n_output), gb, overwrite)


def convolution(spec: ConvSpec) -> Convolution | None:
    """The plan by cuDNN; None if cuDNN is missing or does not support the type or shape."""
    known = np.dtype(spec.dtype).name in graphs.TYPES and 1 <= len(spec.kernel) <= 3 and 0 not in spec.in_shape
    return Convolution(spec) if known and graphs.frontend() is not None else None
