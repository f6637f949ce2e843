"""Matrix products of inner product layers on the device, by cuBLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels.cuda.arena import arena
from scaffe.layers.kernels.cuda.channels import add_bias, add_gradients, parts_of
from scaffe.layers.kernels.cuda.elementwise import convert
from scaffe.layers.kernels.cuda.gemm import matrix, multiply


class InnerProduct:
    """y = x wᵀ + b for M rows of K inputs and N outputs.

    Args:
        m, n, k: the sizes.
        transpose: w is (K, N) instead of (N, K).
        dtype: of x and y; w, b and their gradients are float32 beside half types (w may be in the half type too).
    """

    def __init__(self, m: int, n: int, k: int, transpose: bool, dtype: Any) -> None:
        self._m, self._n, self._k, self._transpose, self._dtype = m, n, k, transpose, np.dtype(dtype)
        self._w = ((k, n) if transpose else (n, k), self._dtype)
        arena.reserve(self._w, parts_of(m, n, dtype))

    def forward(self, x: Any, w: Any, b: Any, y: Any, relu_slope: float | None = None) -> None:
        """y = x wᵀ + b, then a ReLU if a slope is given."""
        m, n, k = self._m, self._n, self._k
        x, y = x.reshape(m, k), y.reshape(m, n)
        multiply(m, n, k, matrix(x), matrix(self._narrowed(w), not self._transpose), matrix(y), (x.dtype, y.dtype))
        add_bias(y, b, relu_slope)

    def backward_data(self, gy: Any, w: Any, gx: Any) -> None:
        """Write the bottom's gradient to gx."""
        m, n, k = self._m, self._n, self._k
        gy, gx = gy.reshape(m, n), gx.reshape(m, k)
        multiply(m, k, n, matrix(gy), matrix(self._narrowed(w), self._transpose), matrix(gx), (gy.dtype, gx.dtype))

    def backward_weights(self, x: Any, gy: Any, gw: Any, gb: Any, overwrite: bool = False) -> None:
        """Add the gradients of weights and bias to gw and gb (None: not wanted), or write them if ``overwrite``."""
        m, n, k = self._m, self._n, self._k
        x, gy, gw = x.reshape(m, k), gy.reshape(m, n), gw.reshape(self._w[0])
        left, right = (x, gy) if self._transpose else (gy, x)
        multiply(gw.shape[0], gw.shape[1], m, matrix(left, True), matrix(right), matrix(gw), (x.dtype, gw.dtype),
                 add=not overwrite)
        if gb is not None:
            add_gradients(gy, gb, overwrite)

    def _narrowed(self, w: Any) -> Any:
        """The weights in the type of x."""
        w = w.reshape(self._w[0])
        if w.dtype == self._dtype:
            return w
        (narrow,) = arena.take(self._w)
        convert(w.reshape(-1), narrow.reshape(-1))
        return narrow
