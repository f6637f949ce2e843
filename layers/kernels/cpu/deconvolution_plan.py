"""Deconvolution by a convolution's plan: its forward is the convolution's backward_data, and the reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Deconvolution:
    """The three passes, on the CPU or on a device.

    Args:
        plan: the plan, without bias, of the convolution from top to bottom.
        add_bias: the backend's (y, b, relu_slope): adds b (C,) to y (rows, C), then applies a ReLU if given a slope.
        add_gradients: the backend's (g, gb, overwrite): adds the sum over the rows of g to gb, or writes it.
    """

    def __init__(self, plan: Any, add_bias: Callable[[Any, Any, float | None], None],
                 add_gradients: Callable[[Any, Any, bool], None]) -> None:
        self._plan, self._add_bias, self._add_gradients = plan, add_bias, add_gradients
        self._n_output = plan.spec.in_shape[1]

    def forward(self, x: Any, w: Any, b: Any, y: Any, relu_slope: float | None = None) -> None:
        """Write y, then apply a ReLU if a slope is given."""
        self._plan.backward_data(x, w, y)
        self._add_bias(y.reshape(-1, self._n_output), b, relu_slope)

    def backward_data(self, gy: Any, w: Any, gx: Any) -> None:
        """Write the bottom's gradient to gx."""
        self._plan.forward(gy, w, None, gx)

    def backward_weights(self, x: Any, gy: Any, gw: Any, gb: Any, overwrite: bool = False) -> None:
        """Add the gradients of weights and bias to gw and gb (None: not wanted), or write them if ``overwrite``."""
        self._plan.backward_weights(gy, x, gw, None, overwrite)
        if gb is not None:
            self._add_gradients(gy.reshape(-1, self._n_output), gb, overwrite)

    def working_bytes(self) -> dict[str, int]:
        """Bytes by name of the working memory of all passes, which the plans of a thread share, where it is known."""
        found: dict[str, int] = getattr(self._plan, "working_bytes", dict)()
        return found
