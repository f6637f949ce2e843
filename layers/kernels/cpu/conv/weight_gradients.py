"""Plans of convolutions of several kernels: one for the weights' gradient, and perhaps one that filters both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any, Protocol

import numpy as np

from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.channels import add_gradients
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.plans import WeightedPlan
from scaffe.layers.kernels.specs import ConvSpec


class Gradient(Protocol):
    """Computes the gradient of one geometry's weights."""

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        """Add the gradient to gw, in Caffe's order, or overwrite it. Images are channels-last."""

    def working_bytes(self) -> dict[str, int]:
        """Bytes by name of the working arrays that ``run`` uses."""


class WithGradient:
    """The base of such plans; see ``WeightedPlan``. ``gradient`` has the ``run`` of a ``Gradient``."""

    spec: ConvSpec
    gradient: Any

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        self._check(x, gw, gy)
        self.gradient.run(x, gy, gw, overwrite)
        if gb is not None:
            add_gradients(gy.reshape(-1, self.spec.n_output), gb, overwrite)

    @cached_property
    def _n_elems(self) -> tuple[int, int, int]:
        return prod(self.spec.in_shape), prod(self.spec.weight_shape), prod(self.spec.out_shape)

    def _check(self, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
        for n_elems, array in zip(self._n_elems, (x, w, y), strict=True):
            expect_elems(n_elems, array)


class SeparateWeightGradient(WithGradient):
    """A plan that computes everything but the weights' gradient by another one."""

    def __init__(self, others: WeightedPlan, spec: ConvSpec, gradient: Gradient) -> None:
        self._others, self.forward, self.backward_data = others, others.forward, others.backward_data
        self.spec, self.gradient = spec, gradient

    def working_bytes(self) -> dict[str, int]:
        return largest(getattr(self._others, "working_bytes", dict)(), self.gradient.working_bytes())


class Filtering(Protocol):
    """A convolution of one geometry, ``spec``, with weights in an order of its own; or that of a bottom's gradient."""

    spec: ConvSpec

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Shape of the weights that ``transform_weights`` writes."""

    def transform_weights(self, w: np.ndarray, weights: np.ndarray) -> None:
        """Write weights in Caffe's order (O, I, H, W), contiguous, as ``run`` reads them."""

    def run(self, x: np.ndarray, weights: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None = None,
            slope: float = 1) -> None:
        """y = x * w + b, plus ``added``, then a ReLU of that slope below 0 (1: none). Images lie channels-last."""

    def working_bytes(self) -> dict[str, int]:
        """Bytes by name of the working arrays that both use."""


class FilteringPlan(WithGradient):
    """A plan whose forward and backward to the bottom are filterings that ``filtering`` makes of a geometry of images
    with strides and dilations of 1, the second ``is_flipped``; ``gradient`` makes the gradient of its weights."""

    def __init__(self, spec: ConvSpec, filtering: Callable[..., Filtering],
                 gradient: Callable[[ConvSpec], Gradient]) -> None:
        self.spec, self._filtering, self._make_gradient = spec, filtering, gradient
        self._forward = filtering(spec)

    @cached_property
    def gradient(self) -> Gradient:
        return self._make_gradient(self.spec)

    @cached_property
    def _back(self) -> Filtering:
        spec = self.spec
        pad = tuple(taps - 1 - pad for taps, pad in zip(spec.kernel, spec.pad, strict=True))
        turned = replace(spec, in_shape=spec.out_shape, n_output=spec.in_shape[1], pad=pad)
        return self._filtering(turned, is_flipped=True)

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        self._check(x, w, y)
        expect_elems(self.spec.n_output, b)
        self._filter(self._forward, x, w, b, y, 1 if relu_slope is None else relu_slope)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        self._check(gx, w, gy)
        self._filter(self._back, gy, w, None, gx, 1)

    def working_bytes(self) -> dict[str, int]:
        ways = self._forward, self._back
        flipped = {"flipped": 4 * max(prod(way.weights_shape) for way in ways)}
        return largest(*(way.working_bytes() for way in ways), self.gradient.working_bytes(), flipped)

    def _filter(self, way: Filtering, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                slope: float) -> None:
        shape = way.weights_shape
        weights: np.ndarray = workspace("flipped", 4 * prod(shape)).view(np.float32).reshape(shape)
        way.transform_weights(w.reshape(self.spec.weight_shape), weights)
        way.run(x, weights, np.zeros(way.spec.n_output, np.float32) if b is None else b, y, slope=slope)


def largest(*uses: Mapping[str, int]) -> dict[str, int]:
    """By name the most that one of several passes uses: bytes of working arrays, which the plans of a thread share."""
    return {name: max(use.get(name, 0) for use in uses) for name in {name for use in uses for name in use}}
