"""Reduction: all axes from one on to a single number (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.labels import check_axis
from scaffe.layers.base.layer import Layer, layer_types

SUM, ASUM, SUMSQ, MEAN = 1, 2, 3, 4  # ReductionParameter.ReductionOp


@layer_types.register("Reduction")
class Reduction(Layer):
    """coeff times the sum, absolute sum, sum of squares or mean over axes axis..last."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The axes before ``axis`` stay. Raises LayerError for an axis out of range."""
        p = self.param.reduction_param
        self.axis = check_axis(bottom[0], p.axis)
        self.operation = p.operation
        self.coeff = p.coeff / (bottom[0].count(self.axis) if p.operation == MEAN else 1)
        top[0].reshape(bottom[0].shape[: self.axis])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Reduce."""
        x = bottom[0].data
        terms = {ASUM: np.abs, SUMSQ: np.square}.get(self.operation, np.positive)(x)
        top[0].data[...] = self.coeff * terms.sum(axis=tuple(range(self.axis, x.ndim)))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """The top's diff times coeff, sign or twice the bottom."""
        if not propagate_down[0]:
            return
        x, gx = bottom[0].data, bottom[0].diff
        gy = self.coeff * top[0].diff.reshape(top[0].shape + (1,) * (x.ndim - self.axis))
        if self.operation in (SUM, MEAN):
            gx[...] = gy
        else:
            np.multiply(gy, np.sign(x) if self.operation == ASUM else 2 * x, out=gx)
