"""Inner products on bfloat16 activations: float32 weights in Caffe's order, rounded once for forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.bias import add_bias, add_gradients
from scaffe.layers.kernels.cpu.elementwise import copy
from scaffe.layers.kernels.cpu.onednn.inner_product import Gradient, Passes
from scaffe.layers.kernels.cpu.onednn.library import Library


class HalfInnerProduct:
    """y = x wᵀ + b for M rows of K inputs and N outputs, x and y of bfloat16, the sums and the bias in float32.

    Forward is computed as yᵀ = w xᵀ, as in float32.

    Args:
        lib: the library.
        m, n, k: the sizes.
        transpose: w is (K, N) instead of (N, K).
        dtype: bfloat16.

    Raises:
        OnednnError: oneDNN has no kernel for it.
    """

    def __init__(self, lib: Library, m: int, n: int, k: int, transpose: bool, dtype: np.dtype) -> None:
        self._y_shape = (m, n)
        self._w = np.zeros(n * k, dtype)
        self._turned, self._sums = np.zeros((n, m), np.float32), np.zeros((m, n), np.float32)
        self._passes = Passes(lib, m, n, k, transpose, dtype)
        self._gradient = Gradient(lib, m, n, k, transpose, dtype)

    def forward(self, x: Any, w: np.ndarray, b: np.ndarray | None, y: Any, relu_slope: float | None = None) -> None:
        """y = x wᵀ + b, then a ReLU if a slope is given; w is rounded here."""
        copy(w.reshape(-1), self._w)
        self._passes.product.run(self._w, x, self._turned)
        np.copyto(self._sums, self._turned.T)
        add_bias(self._sums, b, relu_slope)
        copy(self._sums.reshape(-1), y.reshape(-1))

    def backward_data(self, gy: Any, w: np.ndarray, gx: Any) -> None:
        """Write the bottom's gradient to gx, with the weights that forward rounded."""
        self._passes.data.run(gy, self._w, gx)

    def backward_weights(self, x: Any, gy: Any, gw: np.ndarray, gb: np.ndarray | None, overwrite: bool = False) -> None:
        """Add the gradients of weights and bias to gw and gb (None: not wanted), or write them if ``overwrite``."""
        self._gradient.run(x, gy, gw, overwrite)
        if gb is not None:
            add_gradients(gy.reshape(self._y_shape), gb, overwrite)
