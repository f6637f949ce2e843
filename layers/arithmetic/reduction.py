"""Reduction: the last axes reduced to one number (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_axis
from scaffe.layers.base.layer import Layer, layer_types

SUM, ASUM, SUMSQ, MEAN = 1, 2, 3, 4  # ReductionParameter.ReductionOp


@layer_types.register("Reduction")
class Reduction(Layer):
    """Reduces ``axis`` and all axes after it to one number: coeff times a sum or mean.

    SUM: the sum of x; ASUM: of |x|; SUMSQ: of x^2; MEAN: the mean of x. Top: the bottom's axes before ``axis``.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top. Raises LayerError if ``axis`` is out of range, or for a mean of no elements."""
        p = self.param.reduction_param
        self.axis = check_axis(bottom[0], p.axis)
        self.operation, self.temporaries = p.operation, int(p.operation in (ASUM, SUMSQ))
        if p.operation == MEAN and not bottom[0].count(self.axis):
            raise LayerError(f"has no mean of no elements: the bottom's shape is {bottom[0].shape}, axis {self.axis}")
        self.coeff = p.coeff / (bottom[0].count(self.axis) if p.operation == MEAN else 1)
        top[0].reshape(bottom[0].shape[: self.axis])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the sums or means."""
        x = bottom[0].data.astype(self.context.param_dtype, copy=False)  # half types cannot hold a long sum on its way
        made = {ASUM: np.abs, SUMSQ: np.square}.get(self.operation)
        terms = x if made is None else made(x)
        top[0].data[...] = self.coeff * terms.sum(axis=tuple(range(self.axis, x.ndim)))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the bottom's gradient: coeff gy times 1 (SUM), 1 / count (MEAN), sign(x) (ASUM) or 2 x (SUMSQ)."""
        if not propagate_down[0]:
            return
        x, gx = bottom[0].data, bottom[0].diff
        gy = self.coeff * top[0].diff.reshape(top[0].shape + (1,) * (x.ndim - self.axis))
        if self.operation in (SUM, MEAN):
            gx[...] = gy
        else:
            np.multiply(gy, np.sign(x) if self.operation == ASUM else 2 * x, out=gx)
