"""Deconvolution on a convolution's plan: forward is its backward by the data, and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Deconvolution:
    """The three passes, wherever the plan's arrays lie.

    Args:
        plan: the plan, without bias, of the convolution from top to bottom.
        add_bias: (y, b, relu_slope): adds a bias to rows (rows, channels), with ReLU where a slope is given.
        add_gradients: (g, gb, overwrite): adds sums over rows to the bias's gradient, or writes them.
    """

    def __init__(self, plan: Any, add_bias: Callable[[Any, Any, float | None], None],
                 add_gradients: Callable[[Any, Any, bool], None]) -> None:
        self._plan, self._add_bias, self._add_gradients = plan, add_bias, add_gradients
        self._n_output = plan.spec.in_shape[1]

    def forward(self, x: Any, w: Any, b: Any, y: Any, relu_slope: float | None = None) -> None:
        """Write y, with ReLU of that slope where one is given."""
        self._plan.backward_data(x, w, y)
        self._add_bias(y.reshape(-1, self._n_output), b, relu_slope)

    def backward_data(self, gy: Any, w: Any, gx: Any) -> None:
        """Write the bottom's gradient."""
        self._plan.forward(gy, w, None, gx)

    def backward_weights(self, x: Any, gy: Any, gw: Any, gb: Any, overwrite: bool = False) -> None:
        """Add the weights' and the bias's gradients to gw and gb, or write them."""
        self._plan.backward_weights(gy, x, gw, None, overwrite)
        if gb is not None:
            self._add_gradients(gy.reshape(-1, self._n_output), gb, overwrite)
