"""ReLU, with Caffe's leak."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.neuron import Neuron


@layer_types.register("ReLU")
class ReLU(Neuron):
    """y = x where x > 0, negative_slope · x elsewhere; any shape, in place or not.

    Its gradient needs only the sign of x, which y keeps where the slope is not negative.
    """

    recordable = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the slope; a negative one makes the layer keep x when in place."""
        self._slope = float(self.param.relu_param.negative_slope)
        self.keeps_input = self._slope < 0

    @property
    def relu_slope(self) -> float | None:
        """The slope, for the layer that this one is to be fused to; None if it must not be."""
        return None if self.keeps_input else self._slope

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        """Write y."""
        self.context.kernels.relu_forward(x, y, self._slope)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """Write gx."""
        self.context.kernels.relu_backward(x, gy, gx, self._slope)
