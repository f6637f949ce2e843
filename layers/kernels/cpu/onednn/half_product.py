"""Inner products on bfloat16 activations: float32 weights in Caffe's order, rounded once for forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.bias import add_bias, add_gradients
from scaffe.layers.kernels.cpu.elementwise import copy
from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.primitive import (
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    SRC,
    WEIGHTS,
    Primitive,
    strided,
)

TRAINING = 64


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
        x, y = strided(lib, (m, k), (k, 1), dtype), strided(lib, (m, n), (n, 1), dtype)
        order = (1, n) if transpose else (k, 1)
        w, gw = strided(lib, (n, k), order, dtype), strided(lib, (n, k), order)
        x_turned, y_turned = strided(lib, (k, m), (1, k), dtype), strided(lib, (n, m), (m, 1))
        product = lib.make("matmul_primitive_desc_create", lib.engine, w, x_turned, None, y_turned, None)
        self._product = Primitive(lib, product, [(SRC, w), (WEIGHTS, x_turned), (DST, y_turned)])
        hint = lib.make("inner_product_forward_primitive_desc_create", lib.engine, TRAINING, x, w, None, y, None)
        data = lib.make("inner_product_backward_data_primitive_desc_create", lib.engine, x, w, y, hint, None)
        self._data = Primitive(lib, data, [(DIFF_DST, y), (WEIGHTS, w), (DIFF_SRC, x)])
        weights = lib.make("inner_product_backward_weights_primitive_desc_create", lib.engine, x, gw, None, y, hint,
                           None)
        self._weights = Primitive(lib, weights, [(SRC, x), (DIFF_DST, y), (DIFF_WEIGHTS, gw)])
        self._gradient: np.ndarray | None = None  # one that is added, not written

    def forward(self, x: Any, w: np.ndarray, b: np.ndarray | None, y: Any, relu_slope: float | None = None) -> None:
        """y = x wᵀ + b, then a ReLU if a slope is given; w is rounded here."""
        copy(w.reshape(-1), self._w)
        self._product.run(self._w, x, self._turned)
        np.copyto(self._sums, self._turned.T)
        add_bias(self._sums, b, relu_slope)
        copy(self._sums.reshape(-1), y.reshape(-1))

    def backward_data(self, gy: Any, w: np.ndarray, gx: Any) -> None:
        """Write the bottom's gradient to gx, with the weights that forward rounded."""
        self._data.run(gy, self._w, gx)

    def backward_weights(self, x: Any, gy: Any, gw: np.ndarray, gb: np.ndarray | None, overwrite: bool = False) -> None:
        """Add the gradients of weights and bias to gw and gb (None: not wanted), or write them if ``overwrite``."""
        if overwrite:
            self._weights.run(x, gy, gw)
        else:
            if self._gradient is None:
                self._gradient = np.empty_like(gw)
            self._weights.run(x, gy, self._gradient)
            gw += self._gradient
        if gb is not None:
            add_gradients(gy.reshape(self._y_shape), gb, overwrite)
