"""The gradient of a convolution's weights by oneDNN's direct kernel, where that is as fast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaffe.layers.kernels.cpu.onednn.convolution import Convolution
from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.specs import ConvSpec


class DirectGradient:
    """One geometry; see ``WeightGradient``.

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
        """None of the arrays by name: oneDNN keeps its own."""
        return {}

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        """Add the gradient to gw, in Caffe's order, or write it. Images lie channels-last."""
        self._plan.backward_weights(x, gy, gw, None, overwrite)
