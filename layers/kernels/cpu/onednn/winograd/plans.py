"""Plans of Winograd convolutions for inference and training."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod

import numpy as np

from scaffe.layers.kernels.cpu.arrays import zeros
from scaffe.layers.kernels.cpu.channels import add_gradients
from scaffe.layers.kernels.cpu.onednn.convolution import Convolution
from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.winograd.passes import Filtering, WeightGradient
from scaffe.layers.kernels.cpu.onednn.winograd.tiling import backward_spec, dense, has_faster_gradient, n_bytes
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls
from scaffe.layers.kernels.specs import ConvSpec


class DirectGradient:
    """The weights' gradient by oneDNN's direct kernel, where that is as fast; see ``WeightGradient``.

    Args:
        lib: the library.
        spec: the geometry.

    Raises:
        OnednnError: oneDNN has no kernel for it.
    """

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        self._plan = Convolution(lib, replace(spec, bias=False))

    @property
    def working_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        """Add the gradient to gw, in Caffe's order, or overwrite it. Images are channels-last."""
        self._plan.backward_weights(x, gy, gw, None, overwrite)


class Inference:
    """A plan for inference of a geometry for which ``is_faster`` holds; see ``InferencePlan``.

    Args:
        lib, spec, relu_slope: as for oneDNN's own ``Convolution`` of inference.

    Raises:
        OnednnError: oneDNN has no kernel for it.
    """

    def __init__(self, lib: Library, spec: ConvSpec, relu_slope: float | None) -> None:
        self._filtering, self._slope = Filtering(lib, spec, stays=True), 1 if relu_slope is None else relu_slope
        self._w = zeros(prod(self._filtering.weights_shape)).reshape(self._filtering.weights_shape)
        self._b = np.zeros(spec.n_output, np.float32)

    def set_weights(self, w: np.ndarray, b: np.ndarray) -> None:
        self._filtering.transform_weights(np.ascontiguousarray(w, np.float32), self._w)
        self._b[...] = b

    def share_weights(self, other: Inference) -> None:
        self._w, self._b = other._w, other._b

    def forward(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> None:
        self._filtering.run(x, self._w, self._b, y, added, self._slope)

    def prepare_calls(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> NativeCalls | None:
        return self._filtering.prepare_calls(x, self._w, self._b, y, added, self._slope)


class Training:
    """A plan for training of a geometry for which ``is_faster_in_training`` holds; see ``WeightedPlan``.

    Args:
        lib, spec: as for oneDNN's own ``Convolution``.

    Raises:
        OnednnError: oneDNN has no kernel for it (from the constructor, which builds forward).
    """

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        self._lib, self.spec = lib, spec
        self._forward = Filtering(lib, spec)

    @cached_property
    def _back(self) -> Filtering:
        return Filtering(self._lib, backward_spec(self.spec), is_flipped=True)

    @cached_property
    def _gradient(self) -> WeightGradient | DirectGradient:
        return (WeightGradient if has_faster_gradient(self.spec) else DirectGradient)(self._lib, self.spec)

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        self._filter(self._forward, x, w, b, y, 1 if relu_slope is None else relu_slope)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        self._filter(self._back, gy, w, None, gx, 1)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        self._gradient.run(x, gy, gw, overwrite)
        if gb is not None:
            add_gradients(gy.reshape(-1, gb.size), gb, overwrite)

    def working_bytes(self) -> dict[str, int]:
        """Bytes by name of the working arrays of all passes, which the plans of a thread share."""
        ways = self._forward, self._back
        uses: list[dict[str, tuple[int, ...]]] = [way.working_shapes for way in (*ways, self._gradient)]
        names = {name for use in uses for name in use}
        found = {name: max(n_bytes(use[name]) for use in uses if name in use) for name in names}
        return found | {"flipped": 4 * max(prod(way.weights_shape) for way in ways)}

    @staticmethod
    def _filter(filtering: Filtering, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                slope: float) -> None:
        weights = dense("flipped", filtering.weights_shape)
        filtering.transform_weights(w, weights)
        filtering.run(x, weights, np.zeros(filtering.spec.n_output, np.float32) if b is None else b, y, slope=slope)
