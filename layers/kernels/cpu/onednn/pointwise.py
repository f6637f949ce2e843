"""1x1 convolutions of stride 1: products of matrices, whose kernels are faster where weights are large."""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np

from scaffe.layers.kernels.cpu.bias import add_gradients
from scaffe.layers.kernels.cpu.onednn.convolution import Convolution
from scaffe.layers.kernels.cpu.onednn.inner_product import Gradient, InnerProduct, Passes
from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.specs import ConvSpec

FEWEST_ROWS = 64
FEWEST_WEIGHTS = 1 << 20
"""From how many on forward is a product, too. As measured with AVX-512 (docs/compute.md)."""


def is_pointwise(spec: ConvSpec) -> bool:
    """Whether each output is a product of one pixel's channels, all pixels are read, and there are enough of them."""
    return spec.is_pointwise and max(spec.stride) == 1 and _rows(spec) >= FEWEST_ROWS


class Pointwise:
    """One geometry of float32, for which ``is_pointwise`` holds; see ``WeightedPlan``.

    Args:
        lib, spec: as for oneDNN's own ``Convolution``.

    Raises:
        OnednnError: oneDNN has no kernel for it (from the constructor, which builds forward).
    """

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        self._lib, self.spec = lib, spec
        self._sizes = _rows(spec), spec.n_output, spec.in_shape[1]
        is_large = prod(spec.weight_shape) >= FEWEST_WEIGHTS
        self._forward = InnerProduct(lib, *self._sizes) if is_large else Convolution(lib, spec)

    @cached_property
    def _passes(self) -> Passes:
        return Passes(self._lib, *self._sizes, transpose=False)

    @cached_property
    def _gradient(self) -> Gradient:
        return Gradient(self._lib, *self._sizes, transpose=False)

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        """See WeightedPlan."""
        self._forward.forward(x, w, b, y, relu_slope)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        """See WeightedPlan."""
        self._passes.data.run(gy, w, gx)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        """See WeightedPlan."""
        self._gradient.run(x, gy, gw, overwrite)
        if gb is not None:
            add_gradients(gy.reshape(-1, gb.size), gb, overwrite)


def _rows(spec: ConvSpec) -> int:
    return spec.in_shape[0] * prod(spec.in_shape[2:])
