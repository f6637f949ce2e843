"""Softmax over the last axis of rows on the device, and its loss without a look at labels or loss by the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.launch import THREADS, blocks_for, kernel, most_blocks, wide
from scaffe.layers.kernels.extents import expect_elems, expect_shape
from scaffe.layers.kernels.specs import LossSpec

WARP, WARPS = 32, 8
WIDE_ROW = 2048  # classes from which a row is a block's work instead of a warp's


def rows_grid(n_rows: int, n_classes: int) -> tuple[tuple[int], tuple[int, int]]:
    """Grid and block for kernels whose block takes rows, as many as its y."""
    block = (WARP * WARPS, 1) if n_classes >= WIDE_ROW else (WARP, WARPS)
    return (max(min(-(-n_rows // block[1]), 4 * most_blocks()), 1),), block


def run_rows(name: str, x: Any, arguments: tuple[Any, ...]) -> None:
    """Launch a kernel of ``softmax.cu`` over (rows, classes)."""
    if x.size:
        counts = (np.int64(x.shape[0]), np.int32(x.shape[1]))
        kernel("softmax", name, x.dtype)(*rows_grid(*x.shape), (*arguments, *counts))


def softmax_rows(x: Any, y: Any) -> None:
    """y[r] = exp(x[r] - max) / sum, for each row of (rows, classes). y may be x."""
    expect_shape(x.shape, y)
    run_rows("softmax_rows", x, (x, y))


def softmax_rows_back(y: Any, gy: Any, gx: Any) -> None:
    """Gradient of softmax: gx = y (gy - sum(gy y)) for each row. gx may be gy."""
    expect_shape(y.shape, gy, gx)
    run_rows("softmax_rows_back", y, (y, gy, gx))


class SoftmaxLoss:
    """The plan of one shape. A label out of range makes the loss NaN; ``check`` then reports the label."""

    def __init__(self, spec: LossSpec) -> None:
        cupy, real = device.load(), wide(spec.dtype)
        self._n_classes, self._fixed = spec.n_classes, real.type(spec.divisor or 0)
        self._ignores = (np.int32(spec.ignored is not None), np.int32(spec.ignored or 0))
        self._shape = spec.n_rows, spec.n_classes
        self._counts_of = (np.int64(spec.n_rows), np.int32(spec.n_classes))
        self._losses, self._divisor = cupy.zeros(spec.n_rows, real), cupy.ones(1, real)
        self._counts, self._wrong = cupy.zeros(spec.n_rows, np.int32), cupy.zeros(1, np.int32)

    def forward(self, x: Any, labels: Any, prob: Any, loss: Any) -> None:
        expect_shape(self._shape, x, prob)
        expect_elems(self._shape[0], labels)
        own, other = np.dtype(x.dtype), np.dtype(labels.dtype)
        if x.size:
            kernel("softmax", "softmax_losses", own, other)(
                *rows_grid(*x.shape), (x, labels, prob, self._losses, self._counts, self._wrong, *self._ignores,
                                       *self._counts_of))
        kernel("softmax_loss", "total_loss", np.dtype(loss.dtype))(
            (1,), (THREADS,), (self._losses, self._counts, self._wrong, loss, self._divisor, self._fixed,
                               self._counts_of[0]))

    def backward(self, prob: Any, labels: Any, weight: Any, gx: Any) -> None:
        """Write gx = (prob - onehot(label)) · weight (1,) / divisor; 0 in rows whose label is ignored."""
        expect_shape(self._shape, prob, gx)
        expect_elems(self._shape[0], labels)
        if prob.size:
            kernel("softmax", "softmax_loss_back", np.dtype(prob.dtype), np.dtype(labels.dtype))(
                blocks_for(prob.size), (THREADS,),
                (prob, labels, self._counts, self._divisor, weight.astype(self._divisor.dtype, copy=False), gx,
                 *self._counts_of))

    def check(self) -> None:
        """Raise LayerError if a label since the last check was out of range. The host waits for the device."""
        found = int(self._wrong[0])
        if found:
            self._wrong[...] = 0
            label = found - 1 if found > 0 else "below 0"
            raise LayerError(f"label {label} is not one of the {self._n_classes} classes, 0 to {self._n_classes - 1}")
