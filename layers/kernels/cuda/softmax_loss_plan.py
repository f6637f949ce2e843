"""The multinomial logistic loss of softmax over rows on the device, without a look at labels or loss by the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.base.errors import LayerError
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.launch import THREADS, blocks_for, kernel, wide
from scaffe.layers.kernels.cuda.softmax import rows_grid
from scaffe.layers.kernels.extents import expect_elems, expect_shape
from scaffe.layers.kernels.specs import LossSpec


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
        """Write the probabilities (rows, classes) and the loss (1,) of scores x and labels (rows,)."""
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
