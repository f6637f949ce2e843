"""ReLU, with Caffe's negative_slope (leaky ReLU)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.neuron import Neuron


@layer_types.register("ReLU")
class ReLU(Neuron):
    """y = x where x > 0, negative_slope · x elsewhere (Caffe 1.0). It works in place, too.

    The gradient needs only whether x > 0. Unless the slope is negative, y > 0 tells the same, so that x need not be
    kept.
    """

    by_image = recordable = repeatable = True
    reads_tops = False

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        """See Layer."""
        return True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the slope. If it is negative, the layer keeps a copy of x when it works in place."""
        self._slope = float(self.param.relu_param.negative_slope)
        self.keeps_input = self._slope < 0

    @property
    def relu_slope(self) -> float | None:
        """The slope, for a layer that this one can be fused with; None if it must not be fused."""
        return None if self.keeps_input else self._slope

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        """Write y."""
        self.context.kernels.relu_forward(x, y, self._slope)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """Write gx: gy where x > 0, negative_slope · gy elsewhere."""
        self.context.kernels.relu_backward(x, gy, gx, self._slope)
