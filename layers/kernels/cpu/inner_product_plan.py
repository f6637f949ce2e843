"""Inner products by NumPy's BLAS, and their weights' gradients by register tiles."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.register_tiles import COLUMNS
from scaffe.jit.simd import HAS_AVX512
from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.channels import add_bias, add_gradients
from scaffe.layers.kernels.cpu.conv.panels import TALL, is_fast, multiply_few
from scaffe.layers.kernels.cpu.threads.parts import in_units
from scaffe.layers.kernels.extents import expect_elems, row_blocks
from scaffe.layers.kernels.plans import WeightedPlan

MOST_ROWS, LEAST_WEIGHTS = 64 if HAS_AVX512 else 16, 1_000_000
"""Limits within which it is faster than oneDNN. Measured with AVX-512: 1.6 times for 8 rows, 1.1 to 1.2 for 64, slower
for 128; with AVX2: 1.6 times for 4 rows, 1.1 for 16, slower for 64. It is slower for weights that fit in the
second-level cache."""
ROWS_SHARE = 8  # least outputs for each row, so that the copy of x is an eighth of the weights or less
LEAST_PRODUCTS = 1 << 22  # multiply-adds of a part: handing one to a thread takes less than these


class WeightGradients:
    """A plan of y = x wᵀ + b, w (n, k), with its own kernel for the weights' gradient gyᵀ x, a RowwisePlan; the rest by
    another plan."""

    def __init__(self, others: WeightedPlan, m: int, n: int, k: int) -> None:
        self.forward, self.backward_data = others.forward, others.backward_data
        self.rows = row_blocks(n, k * np.dtype(np.float32).itemsize)
        self._x, self._y, self._w = (m, k), (m, n), (n, k)
        self._zeros = np.zeros(k, np.float32)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        expect_elems(self._w[0], gb)
        self.backward_rows(x, gy, slice(0, self._w[0]), gw, overwrite)
        if gb is not None:
            self.backward_bias(gy, gb, overwrite)

    def backward_rows(self, x: np.ndarray, gy: np.ndarray, rows: slice, gw: np.ndarray, overwrite: bool = True) -> None:
        n_rows, k = rows.stop - rows.start, self._w[1]
        for array, n_elems in ((x, prod(self._x)), (gy, prod(self._y)), (gw, n_rows * k)):
            expect_elems(n_elems, array)
        x, gy = x.reshape(self._x), gy.reshape(self._y)
        panels: np.ndarray = workspace("panels", x.nbytes).view(np.float32)
        _lay_in_panels(x, panels)
        in_units(_products, TALL, n_rows, n_rows * x.size // LEAST_PRODUCTS, gy, rows.start, panels, self._zeros,
                 not overwrite, gw.reshape(-1))

    def backward_bias(self, gy: np.ndarray, gb: np.ndarray, overwrite: bool = True) -> None:
        add_gradients(gy.reshape(self._y), gb, overwrite)


def if_faster(others: WeightedPlan, m: int, n: int, k: int) -> WeightedPlan:
    """A WeightGradients where it is faster than ``others``, else ``others``."""
    is_small = 0 < m <= min(MOST_ROWS, n // ROWS_SHARE)
    fits = is_fast() and is_small and n * k >= LEAST_WEIGHTS and k % COLUMNS == 0
    return WeightGradients(others, m, n, k) if fits else others


@compiled
def _lay_in_panels(x: np.ndarray, panels: np.ndarray) -> None:
    m, k = x.shape
    for j in range(m):
        for p in range(k // COLUMNS):
            to = (p * m + j) * COLUMNS
            for c in range(COLUMNS):
                panels[to + c] = x[j, p * COLUMNS + c]


@compiled
def _products(first: int, stop: int, gy: np.ndarray, column: int, panels: np.ndarray, zeros: np.ndarray, adds: bool,
              gw: np.ndarray) -> None:
    """Compute rows [first, stop) of gw = gyᵀ x, or gw += gyᵀ x if ``adds``, for gy from a column on: all columns of
    eight rows before the next rows."""
    m, k = len(gy), zeros.size
    transposed = np.empty(TALL * m, np.float32)
    for i in range(first, stop, TALL):
        n_rows = min(TALL, stop - i)
        for j in range(m):
            for r in range(n_rows):
                transposed[r * m + j] = gy[j, column + i + r]
        for p in range(k // COLUMNS):
            panel = p * m * COLUMNS
            multiply_few(n_rows, transposed, panels, zeros, gw, adds, np.float32(1), gw, (
                0, m, m, panel, panel, p * COLUMNS, i * k + p * COLUMNS, k))


MOST_ELEMS = 1 << 20  # of a temporary product that is added to a gradient


class InnerProduct:
    """y = x wᵀ + b for m rows of k inputs and n outputs; with ``transpose`` w is (k, n) instead of (n, k)."""

    def __init__(self, m: int, n: int, k: int, transpose: bool = False) -> None:
        self._x, self._y = (m, k), (m, n)
        self._transpose = transpose
        self._w = (k, n) if transpose else (n, k)

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        x, w, y = x.reshape(self._x), w.reshape(self._w), y.reshape(self._y)
        np.dot(x, w if self._transpose else w.T, out=y)
        add_bias(y, b, relu_slope)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        w = w.reshape(self._w)
        np.dot(gy.reshape(self._y), w.T if self._transpose else w, out=gx.reshape(self._x))

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
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
