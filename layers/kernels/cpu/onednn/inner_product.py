"""Inner products with weights in Caffe's order: twice as fast as NumPy's BLAS where rows are few (measured)."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.channels import add_gradients
from scaffe.layers.kernels.cpu.elementwise import copy, relu_forward
from scaffe.layers.kernels.cpu.onednn.library import Library
from scaffe.layers.kernels.cpu.onednn.primitive import SINGLE, Arg, Primitive, strided
from scaffe.layers.kernels.extents import row_blocks

TRAINING = 64


class Passes:
    """The products of M rows of K inputs with weights of N outputs, except the weights' gradient (``Gradient``);
    arguments as for ``InnerProduct``. ``product`` is the primitive of (w, x, yᵀ), yᵀ = w xᵀ, (N, M), float32; ``data``
    that of (gy, w, gx), the inputs' gradient."""

    def __init__(self, lib: Library, m: int, n: int, k: int, transpose: bool, dtype: np.dtype = SINGLE) -> None:
        x, y = strided(lib, (m, k), (k, 1), dtype), strided(lib, (m, n), (n, 1), dtype)
        order = (1, n) if transpose else (k, 1)
        w = strided(lib, (n, k), order, dtype)
        x_turned, y_turned = strided(lib, (k, m), (1, k), dtype), strided(lib, (n, m), (m, 1))
        product = lib.make("matmul_primitive_desc_create", lib.engine, w, x_turned, None, y_turned, None)
        self.product = Primitive(lib, product, [(Arg.SRC, w), (Arg.WEIGHTS, x_turned), (Arg.DST, y_turned)])
        hint = lib.make("inner_product_forward_primitive_desc_create", lib.engine, TRAINING, x, w, None, y, None)
        data = lib.make("inner_product_backward_data_primitive_desc_create", lib.engine, x, w, y, hint, None)
        self.data = Primitive(lib, data, [(Arg.DIFF_DST, y), (Arg.WEIGHTS, w), (Arg.DIFF_SRC, x)])


class Gradient:
    """The weights' gradient, float32; arguments as for ``Passes``."""

    def __init__(self, lib: Library, m: int, n: int, k: int, transpose: bool, dtype: np.dtype = SINGLE) -> None:
        x, y = strided(lib, (m, k), (k, 1), dtype), strided(lib, (m, n), (n, 1), dtype)
        order = (1, n) if transpose else (k, 1)
        w, gw = strided(lib, (n, k), order, dtype), strided(lib, (n, k), order)
        hint = lib.make("inner_product_forward_primitive_desc_create", lib.engine, TRAINING, x, w, None, y, None)
        made = lib.make("inner_product_backward_weights_primitive_desc_create", lib.engine, x, gw, None, y, hint, None)
        self._run = Primitive(lib, made, [(Arg.SRC, x), (Arg.DIFF_DST, y), (Arg.DIFF_WEIGHTS, gw)]).run
        self._added: np.ndarray | None = None

    def run(self, x: Any, gy: Any, gw: np.ndarray, overwrite: bool) -> None:
        if overwrite:
            self._run(x, gy, gw)
            return
        if self._added is None:
            self._added = np.empty_like(gw)
        self._run(x, gy, self._added)
        gw += self._added


class InnerProduct:
    """y = x wᵀ + b for m rows of k inputs and n outputs, all of ``dtype``; with ``transpose`` w is (k, n). Raises
    OnednnError if oneDNN has no kernel.

    Forward computes yᵀ = w xᵀ, so that the weights, the large operand, are read along their rows; only the small result
    is transposed. The gradient of large weights is computed in blocks of rows; see RowwisePlan."""

    def __init__(self, lib: Library, m: int, n: int, k: int, transpose: bool = False, dtype: np.dtype = SINGLE) -> None:
        self._y_shape = (m, n)
        self._turned = np.zeros((n, m), np.float32)
        self._passes = Passes(lib, m, n, k, transpose, dtype)
        self.rows = [] if transpose or dtype != SINGLE else row_blocks(n, k * SINGLE.itemsize)
        lengths = {block.stop - block.start for block in self.rows} or {n}
        self._gradients = {length: Gradient(lib, m, length, k, transpose, dtype) for length in lengths}

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        self._passes.product.run(w, x, self._turned)
        rows = y.reshape(self._y_shape)
        if b is None:
            np.copyto(rows, self._turned.T)
        else:
            np.add(self._turned.T, b, out=rows)
        if relu_slope is not None:
            relu_forward(rows.reshape(-1), rows.reshape(-1), relu_slope)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        self._passes.data.run(gy, w, gx)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        for rows in self.rows:
            self.backward_rows(x, gy, rows, gw[rows], overwrite)
        if not self.rows:
            self.backward_rows(x, gy, slice(0, self._y_shape[1]), gw, overwrite)
        if gb is not None:
            self.backward_bias(gy, gb, overwrite)

    def backward_rows(self, x: np.ndarray, gy: np.ndarray, rows: slice, gw: np.ndarray, overwrite: bool = True) -> None:
        n_rows, n = rows.stop - rows.start, self._y_shape[1]
        if n_rows < n:
            part = workspace("outputs", gy.nbytes // n * n_rows).view(np.float32).reshape(-1, n_rows)
            np.copyto(part, gy.reshape(self._y_shape)[:, rows])
            gy = part
        self._gradients[n_rows].run(x, gy, gw, overwrite)

    def backward_bias(self, gy: np.ndarray, gb: np.ndarray, overwrite: bool = True) -> None:
        total = gy.reshape(self._y_shape).sum(0)
        gb[...] = total if overwrite else gb + total


class HalfInnerProduct(InnerProduct):
    """The same with x and y of ``dtype``, bfloat16; the sums and the bias in float32."""

    def __init__(self, lib: Library, m: int, n: int, k: int, transpose: bool, dtype: np.dtype) -> None:
        super().__init__(lib, m, n, k, transpose, dtype)
        self._w, self._sums = np.zeros(n * k, dtype), np.zeros((m, n), np.float32)

    def forward(self, x: Any, w: np.ndarray, b: np.ndarray | None, y: Any, relu_slope: float | None = None) -> None:
        copy(w.reshape(-1), self._w)
        super().forward(x, self._w, b, self._sums, relu_slope)
        copy(self._sums.reshape(-1), y.reshape(-1))

    def backward_data(self, gy: Any, w: np.ndarray, gx: Any) -> None:
        """Write the bottom's gradient to gx, with the weights that forward rounded."""
        super().backward_data(gy, self._w, gx)

    def backward_bias(self, gy: Any, gb: np.ndarray, overwrite: bool = True) -> None:
        add_gradients(gy.reshape(self._y_shape), gb, overwrite)
