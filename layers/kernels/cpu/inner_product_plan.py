"""Matrix products of inner product layers, by the BLAS under NumPy."""

from __future__ import annotations

import numpy as np

from scaffe.layers.kernels.cpu.bias import add_bias, add_gradients

MOST_ELEMS = 1 << 20  # of a product that is made to be added to a gradient


class InnerProduct:
    """y = x wᵀ + b for M rows of K inputs and N outputs.

    Args:
        m, n, k: the sizes.
        transpose: w is (K, N) instead of (N, K).
    """

    def __init__(self, m: int, n: int, k: int, transpose: bool = False) -> None:
        self._x, self._y = (m, k), (m, n)
        self._transpose = transpose
        self._w = (k, n) if transpose else (n, k)

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        """y = x wᵀ + b, then a ReLU if a slope is given."""
        x, w, y = x.reshape(self._x), w.reshape(self._w), y.reshape(self._y)
        np.dot(x, w if self._transpose else w.T, out=y)
        add_bias(y, b, relu_slope)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        """Write the bottom's gradient to gx."""
        w = w.reshape(self._w)
        np.dot(gy.reshape(self._y), w.T if self._transpose else w, out=gx.reshape(self._x))

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        """Add the gradients of weights and bias to gw and gb (None: not wanted), or write them if ``overwrite``."""
        x, gy, gw = x.reshape(self._x), gy.reshape(self._y), gw.reshape(self._w)
        a, b = (x.T, gy) if self._transpose else (gy.T, x)
        if overwrite:
            np.dot(a, b, out=gw)
        else:
            step = max(MOST_ELEMS // gw.shape[1], 1)
            for i in range(0, len(gw), step):
                gw[i:i + step] += np.dot(a[i:i + step], b)
        if gb is not None:
            add_gradients(gy, gb, overwrite)
