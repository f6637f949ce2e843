"""Batch normalisation with scale, bias, a sum and ReLU as cuDNN graphs.

cuDNN 9 has one engine for them. It needs channels in multiples of 16 bytes and a ReLU of slope 0. Backward recomputes
the sign of the ReLU's input from x. There is no engine for normalisation with given statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, ClassVar

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import Part, arena
from scaffe.layers.kernels.cuda.channels import BatchNorm as Own
from scaffe.layers.kernels.cuda.cudnn import graphs, plans
from scaffe.layers.kernels.cuda.cudnn.graphs import Built, Sheet, data_type
from scaffe.layers.kernels.specs import NO_DIFFS, NOT_FUSED, Fused, FusedDiffs, Ints, NormPasses, NormSpec, Thinned

X, SCALE, BIAS, MEAN, INVERSE, EPS, Y, GY, GX, OF_SCALE, OF_BIAS, ADDEND, BITS, ZERO = range(1, 15)  # tensors
FORWARD, BACKWARD = "batchnorm", "batchnorm_backward"
LARGE = {FORWARD: (X, Y), BACKWARD: (X, GY, GX)}
SMALL = {FORWARD: (SCALE, BIAS, MEAN, INVERSE), BACKWARD: (SCALE, MEAN, INVERSE, OF_SCALE, OF_BIAS)}


@dataclass(frozen=True)
class NormKey:
    """The ``graphs.Key`` of a normalisation's plan: FORWARD, by the batch's statistics, or BACKWARD; the shape as
    ``four_axes`` makes it; all numbers per channel are float32; ``adds``: another tensor is added ahead of ReLU, in
    FORWARD; ``signs``: sign bits of its result are written, too."""

    kind: str
    shape: Ints
    dtype: np.dtype
    eps: float
    relu: bool
    adds: bool = False
    signs: bool = False
    tf32: bool = False
    compiles: ClassVar[bool] = True  # there is no other engine

    @property
    def tensors(self) -> Mapping[int, tuple[Ints, np.dtype]]:
        a_channel = (1, self.shape[1], *(1,) * (len(self.shape) - 2)), np.dtype(np.float32)
        found = dict.fromkeys(LARGE[self.kind], (self.shape, self.dtype))
        found |= dict.fromkeys(SMALL[self.kind], a_channel)
        found |= {BIAS: a_channel} if self.relu else {}
        found |= {ADDEND: (self.shape, self.dtype)} if self.adds else {}
        return found | ({BITS: (self.shape, graphs.SIGNS)} if self.signs else {})

    @property
    def constants(self) -> Mapping[int, np.ndarray]:
        found = {EPS: self.eps} if self.kind == FORWARD else {}
        found |= {ZERO: 0.0} if self.signs else {}
        return {number: np.array(value, np.float32) for number, value in found.items()}

    def draw(self, sheet: Sheet) -> None:
        (self._draw_forward if self.kind == FORWARD else self._draw_backward)(sheet)

    def _draw_forward(self, sheet: Sheet) -> None:
        graph, eps = sheet.graph, sheet.constant(EPS, len(self.shape))
        y, mean, inverse, *_ = graph.batchnorm(
            input=sheet.tensor(X), scale=sheet.tensor(SCALE), bias=sheet.tensor(BIAS), in_running_mean=None,
            in_running_var=None, epsilon=eps, momentum=None)  # the running sums are Caffe's, not cuDNN's means
        if self.adds:
            y = graph.add(a=y, b=sheet.tensor(ADDEND))
        y = graph.relu(y) if self.relu else y
        if self.signs:
            sheet.give(graph.cmp_gt(input=y, comparison=sheet.constant(ZERO, len(self.shape))), BITS)
        sheet.give(y, Y)
        sheet.give(mean, MEAN)
        sheet.give(inverse, INVERSE)

    def _draw_backward(self, sheet: Sheet) -> None:
        graph = sheet.graph
        x, gradient, scale, mean, inverse = map(sheet.tensor, (X, GY, SCALE, MEAN, INVERSE))
        if self.relu:
            y = graph.batchnorm_inference(input=x, mean=mean, inv_variance=inverse, scale=scale,
                                          bias=sheet.tensor(BIAS))
            gradient = graph.relu_backward(loss=gradient, input=y)
            gradient.set_data_type(data_type(self.dtype))  # the engine takes no wider one, though nobody sees it
        found = graph.batchnorm_backward(grad=gradient, input=x, scale=scale, mean=mean, inv_variance=inverse)
        for result, number in zip(found, (GX, OF_SCALE, OF_BIAS), strict=False):
            sheet.give(result, number)


def four_axes(shape: Ints) -> Ints:
    """A shape (N, C, spatial...) with all spatial axes as one, in four axes; shapes of four or five unchanged."""
    return shape if len(shape) in (4, 5) else (*shape[:2], prod(shape[2:]), 1)


class BatchNorm:
    """A BatchNormPlan. Passes in place, with the running sums or with a leaky ReLU run ``channels.BatchNorm``."""

    def __init__(self, spec: NormSpec) -> None:
        self.spec, self._own, self.wrote_signs = spec, Own(spec), False
        self._numbers: Part = (spec.n_channels, np.float32)
        self._ones = device.load().ones(spec.n_channels, np.float32)
        self._zeros = device.load().zeros(spec.n_channels, np.float32)
        self._build = cache(self._build_now)  # what follows is not known before the first pass

    def _build_now(self, kind: str, slope: float | None, adds: bool = False, signs: bool = False) -> Built | None:
        if slope:
            return None
        key = NormKey(kind, four_axes(self.spec.in_shape), np.dtype(self.spec.dtype), self.spec.eps, slope is not None,
                      adds, signs)
        return plans.build(key)

    def scratch(self, passes: NormPasses) -> list[tuple[Part, ...]]:
        """What these passes take of the arena at once. Builds their graphs, which are else built at their first run."""
        found = [self._build(FORWARD, passes.relu_slope, passes.adds)] if passes.forward else []
        found += [self._build(BACKWARD, passes.slope_back)] if passes.backward else []
        return [*((self._workspace(built), self._numbers, self._numbers) for built in found if built is not None),
                *self._own.scratch(passes)]

    def forward_train(self, x: Any, y: Any, sums: Any, fused: Fused = NOT_FUSED, kept: Any = None) -> None:
        adds, signs = fused.addend is not None, fused.signs is not None
        ours = _lie_together(x, y) or (adds and _lie_together(fused.addend, y))
        built = None if ours else self._build(FORWARD, fused.slope, adds, signs)
        self.wrote_signs = signs and built is not None
        if built is None:
            self._own.forward_train(x, y, sums, fused, kept)
            return
        if kept is not None:
            kept[...] = x
        workspace, *_ = arena.take(self._workspace(built))
        built.run({**self._statistics(), SCALE: self._scale(fused), BIAS: self._bias(fused), X: x, Y: y,
                   **({ADDEND: fused.addend} if adds else {}), **({BITS: fused.signs} if signs else {})}, workspace)
        self._own.add_to_sums(sums)

    def can_write_signs(self, slope: float | None, adds: bool) -> bool:
        """See SigningPlan."""
        n_elems = self.spec.n_rows * self.spec.n_channels
        return slope is not None and n_elems % 8 == 0 and self._build(FORWARD, slope, adds, True) is not None

    def forward_fixed(self, x: Any, y: Any, sums: Any, fused: Fused = NOT_FUSED, kept: Any = None) -> None:
        self._own.forward_fixed(x, y, sums, fused, kept)

    def normalized(self, x: Any, xn: Any) -> None:
        self._own.normalized(x, xn)

    def backward(self, x: Any, gy: Any, gx: Any, fused: Fused = NOT_FUSED, diffs: FusedDiffs = NO_DIFFS) -> None:
        ours = self._own.fixed or gx is None or _lie_together(gy, gx)
        built = None if ours else self._build(BACKWARD, fused.slope)
        if built is None:
            self._own.backward(x, gy, gx, fused, diffs)
            return
        workspace, *places = arena.take(self._workspace(built), self._numbers, self._numbers)
        if diffs.overwrite:
            own = zip((diffs.scale, diffs.bias), places, strict=True)
            places = [place if target is None else target for target, place in own]
        arrays = {**self._statistics(), SCALE: self._scale(fused), X: x, GY: gy, GX: gx,
                  **dict(zip((OF_SCALE, OF_BIAS), places, strict=True))}
        if fused.slope is not None:
            arrays[BIAS] = self._bias(fused)
        built.run(arrays, workspace)
        if not diffs.overwrite and (diffs.scale is not None or diffs.bias is not None):
            self._own.leave(places[0], places[1], diffs)

    def backward_thinned(self, x: Any, gy: Any, gx: Any, thinned: Thinned, fused: Fused = NOT_FUSED,
                         diffs: FusedDiffs = NO_DIFFS) -> None:
        """See ThinningPlan; cuDNN would read a whole gradient."""
        self._own.backward_thinned(x, gy, gx, thinned, fused, diffs)

    def _workspace(self, built: Built) -> Part:
        return built.n_workspace_bytes, np.uint8

    def _statistics(self) -> dict[int, Any]:
        return {MEAN: self._own.mean, INVERSE: self._own.inverse}

    def _scale(self, fused: Fused) -> Any:
        return self._ones if fused.scale is None else fused.scale

    def _bias(self, fused: Fused) -> Any:
        return self._zeros if fused.bias is None else fused.bias


def _lie_together(a: Any, b: Any) -> bool:
    """Whether one array overwrites the other, which cuDNN does not document."""
    return bool(a.data.ptr == b.data.ptr)


def batch_norm(spec: NormSpec) -> BatchNorm | None:
    """The plan by cuDNN; None if cuDNN is missing or does not support the type or shape."""
    known = np.dtype(spec.dtype).name in graphs.TYPES and 0 not in spec.in_shape
    return BatchNorm(spec) if known and graphs.frontend() is not None else None
