"""The plan of such a convolution, and for which geometries it is faster than oneDNN's."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod

import numpy as np

from scaffe.jit.registers import LANES
from scaffe.layers.kernels.cpu.bias import add_gradients
from scaffe.layers.kernels.cpu.image_lanes.filtering import ROWS, Filtering
from scaffe.layers.kernels.cpu.image_lanes.weight_gradient import WeightGradient
from scaffe.layers.kernels.cpu.onednn.workspace import workspace
from scaffe.layers.kernels.cpu.panels import is_fast
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import ConvSpec

FEWEST_IMAGES = 16  # fewer leave lanes of the widest registers empty
FEWEST_INPUTS = 50  # of a line of the filter: shorter sums are over before they pay for loading and storing


class Convolution:
    """One geometry, for which ``suits`` holds; see ``WeightedPlan``.

    Args:
        spec: the geometry.
    """

    def __init__(self, spec: ConvSpec) -> None:
        self.spec = spec
        self._sizes = prod(spec.in_shape), prod(spec.weight_shape), prod(spec.out_shape)
        self._forward, self._gradient = Filtering(spec), WeightGradient(spec)

    @cached_property
    def _back(self) -> Filtering:
        spec = self.spec
        return Filtering(replace(spec, in_shape=(*spec.out_shape,), n_output=spec.in_shape[1], pad=tuple(
            taps - 1 - pad for taps, pad in zip(spec.kernel, spec.pad, strict=True))), is_turned=True)

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        """See WeightedPlan."""
        self._check(x, w, y)
        expect_elems(self.spec.n_output, b)
        self._filter(self._forward, x, w, b, y, 1 if relu_slope is None else relu_slope)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        """See WeightedPlan."""
        self._check(gx, w, gy)
        self._filter(self._back, gy, w, None, gx, 1)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        """See WeightedPlan."""
        self._check(x, gw, gy)
        self._gradient.run(x, gy, gw, overwrite)
        if gb is not None:
            add_gradients(gy.reshape(-1, self.spec.n_output), gb, overwrite)

    def working_bytes(self) -> dict[str, int]:
        """Bytes by name of the working memory of all passes, which the plans of a thread share."""
        uses = [self._forward.working_bytes(), self._back.working_bytes(), self._gradient.working_bytes(),
                {"turned": 4 * self._sizes[1]}]
        return {name: max(use[name] for use in uses if name in use) for name in {name for use in uses for name in use}}

    def _check(self, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
        for n_elems, array in zip(self._sizes, (x, w, y), strict=True):
            expect_elems(n_elems, array)

    def _filter(self, way: Filtering, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                slope: float) -> None:
        taken = workspace("turned", 4 * w.size).view(np.float32).reshape(way.taken_shape)
        way.take(w.reshape(self.spec.weight_shape), taken)
        way.run(x, taken, np.zeros(way.spec.n_output, np.float32) if b is None else b, y, slope)


def suits(spec: ConvSpec) -> bool:
    """Whether a geometry's channels fill no whole vectors, and this is faster for it than filling them up."""
    if len(spec.kernel) != 2 or spec.dtype != np.float32 or not is_fast():
        return False
    taps, (n, inputs) = spec.kernel[0], spec.in_shape[:2]
    is_plain = (spec.kernel, spec.stride, spec.dilation, spec.group) == ((taps, taps), (1, 1), (1, 1), 1)
    is_odd = inputs % LANES > 0 and spec.n_output % LANES > 0 and inputs % ROWS == spec.n_output % ROWS == 0
    return is_plain and is_odd and max(spec.pad) < taps and n >= FEWEST_IMAGES and taps * inputs >= FEWEST_INPUTS
