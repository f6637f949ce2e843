"""Deconvolution on a convolution's plan: forward is its backward by the data, and the other way round."""

from __future__ import annotations

from typing import Any

import numpy as np


class Deconvolution:
    """The three passes.

    Args:
        plan: the plan, without bias, of the convolution from top to bottom.
    """

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._n_output = plan.spec.in_shape[1]

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        """Write y, with ReLU of that slope where one is given."""
        self._plan.backward_data(x, w, y)
        if b is not None:
            rows = y.reshape(-1, self._n_output)  # channels last
            rows += b
        if relu_slope is not None:
            from layers.kernels.elementwise import relu_forward

            relu_forward(y, y, relu_slope)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        """Write the bottom's gradient."""
        self._plan.forward(gy, w, None, gx)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        """Add the weights' and the bias's gradients to gw and gb, or write them."""
        self._plan.backward_weights(gy, x, gw, None, overwrite)
        if gb is not None:
            total = gy.reshape(-1, self._n_output).sum(0)
            gb[...] = total if overwrite else gb + total
