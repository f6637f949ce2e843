"""Inner products of few rows, like a matrix-vector product (GEMV): bound by reading each weight once from memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.threads.parts import in_units
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls, prepare_units
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.plans import RowwisePlan, WeightedPlan

MOST_ROWS = 4
"""For at most this many rows it is faster than oneDNN: 2.0 times for one row of CaffeNet's fc6, 1.2 times for four."""
AT_ONCE = 4  # outputs computed together: four streams of weights use more of the memory's bandwidth than one
LEAST_WEIGHTS = 1 << 20  # of a part: handing one to a thread takes as long as reading them
REORDERED = {"reassoc", "contract"}  # lets sums be vectorized


class GemvProducts:
    """y = x wᵀ + b in float32 for few rows of x (m, k), w (n, k); the gradients by another plan. See
    ``WeightedPlan``."""

    def __init__(self, others: WeightedPlan, m: int, n: int, k: int) -> None:
        self.backward_data, self.backward_weights = others.backward_data, others.backward_weights
        if isinstance(others, RowwisePlan):
            self.rows, self.backward_rows, self.backward_bias = others.rows, others.backward_rows, others.backward_bias
        self._x, self._w, self._y = (m, k), (n, k), (m, n)
        self._none = np.zeros(n, np.float32)
        self._ranges = AT_ONCE, n, n * k // LEAST_WEIGHTS

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        in_units(_products, *self._ranges, *self._arguments(x, w, b, y, relu_slope))

    def prepare_calls(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
             relu_slope: float | None = None) -> NativeCalls | None:
        """See Preparable. ``x`` may be a view of images that are stored in another order than the weights."""
        ordered = x if x.flags.c_contiguous else np.empty(x.shape, np.float32)
        products = prepare_units(_products, *self._ranges, *self._arguments(ordered, w, b, y, relu_slope))
        if ordered is x or products is None:
            return products
        copy = prepare_units(_copy, 1, len(x), 1, x, ordered)
        return None if copy is None else copy + products

    def _arguments(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                   relu_slope: float | None) -> tuple[Any, ...]:
        """The arguments of ``_products`` after its range."""
        for array, shape in ((x, self._x), (w, self._w), (y, self._y)):
            expect_elems(shape[0] * shape[1], array)
        expect_elems(self._w[0], b)
        return (x.reshape(self._x), w.reshape(self._w), self._none if b is None else b,
                np.float32(1 if relu_slope is None else relu_slope), y.reshape(self._y))


def if_faster(others: WeightedPlan, m: int, n: int, k: int) -> WeightedPlan:
    """A GemvProducts where its forward is faster than that of ``others``, else ``others``."""
    return GemvProducts(others, m, n, k) if 0 < m <= MOST_ROWS else others


@compiled
def _copy(first: int, stop: int, x: np.ndarray, y: np.ndarray) -> None:
    y[first:stop] = x[first:stop]


@compiled(error_model="numpy", fastmath=REORDERED)
def _products(first: int, stop: int, x: np.ndarray, w: np.ndarray, bias: np.ndarray, slope: float,
              y: np.ndarray) -> None:
    """Compute outputs [first, stop), four at a time. The last one is repeated to fill four: all are summed alike."""
    for i in range(first, stop, AT_ONCE):
        i1, i2, i3 = min(i + 1, stop - 1), min(i + 2, stop - 1), min(i + 3, stop - 1)
        w0, w1, w2, w3 = w[i], w[i1], w[i2], w[i3]
        for m in range(x.shape[0]):
            row = x[m]
            a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for j in range(w.shape[1]):
                a += w0[j] * row[j]
                b += w1[j] * row[j]
                c += w2[j] * row[j]
                d += w3[j] * row[j]
            for o, total in ((i, a), (i1, b), (i2, c), (i3, d)):
                value = total + bias[o]
                y[m, o] = value if value > 0 else slope * value
