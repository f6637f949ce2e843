"""Matrix products of inner product layers on the device, by cuBLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels.cuda.arena import arena
from scaffe.layers.kernels.cuda.channels import add_bias, add_gradients, parts_of
from scaffe.layers.kernels.cuda.cublas import columns, matrix, multiply
from scaffe.layers.kernels.cuda.elementwise import convert
from scaffe.layers.kernels.cuda.launch import wide
from scaffe.layers.kernels.extents import row_blocks


class InnerProduct:
    """y = x wᵀ + b for M rows of K inputs and N outputs.

    Args:
        m, n, k: the sizes.
        transpose: w is (K, N) instead of (N, K).
        dtype: of x and y; w, b and their gradients are float32 beside half types (w may be in the half type too).

    Attributes:
        rows: see RowwisePlan. The gradient of long weights always comes by these, since products of other sizes may add
            in another order.
    """

    def __init__(self, m: int, n: int, k: int, transpose: bool, dtype: Any) -> None:
        self._m, self._n, self._k, self._transpose, self._dtype = m, n, k, transpose, np.dtype(dtype)
        self._w = ((k, n) if transpose else (n, k), self._dtype)
        self.rows = [] if transpose else row_blocks(n, k * wide(dtype).itemsize)
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
        gw = gw.reshape(self._w[0])
        for rows in self.rows:
            self.backward_rows(x, gy, rows, gw[rows], overwrite)
        if not self.rows:
            self.backward_rows(x, gy, slice(0, self._w[0][0]), gw, overwrite)
        if gb is not None:
            self.backward_bias(gy, gb, overwrite)

    def backward_rows(self, x: Any, gy: Any, rows: slice, gw: Any, overwrite: bool = True) -> None:
        """See RowwisePlan; with ``transpose`` all of them alone."""
        x, gy, gw = x.reshape(self._m, self._k), gy.reshape(self._m, self._n), gw.reshape(-1, self._w[0][1])
        left, right = (matrix(x), matrix(gy)) if self._transpose else (columns(gy, rows), matrix(x))
        multiply(gw.shape[0], gw.shape[1], self._m, left._replace(turned=True), right, matrix(gw), (x.dtype, gw.dtype),
                 add=not overwrite)

    def backward_bias(self, gy: Any, gb: Any, overwrite: bool = True) -> None:
        """See RowwisePlan."""
        add_gradients(gy.reshape(self._m, self._n), gb, overwrite)

    def _narrowed(self, w: Any) -> Any:
        """The weights in the type of x."""
        w = w.reshape(self._w[0])
        if w.dtype == self._dtype:
            return w
        (narrow,) = arena.take(self._w)
        convert(w.reshape(-1), narrow.reshape(-1))
        return narrow
