"""Reductions: the last axes to one number, the indices of the largest elements (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis, check_n_axes
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types

SUM, ASUM, SUMSQ, MEAN = 1, 2, 3, 4  # ReductionParameter.ReductionOp


@layer_types.register("Reduction")
class Reduction(Layer):
    """Reduces ``axis`` and all axes after it to one number: coeff times a sum or mean.

    SUM: the sum of x; ASUM: of |x|; SUMSQ: of x^2; MEAN: the mean of x. Top: the bottom's axes before ``axis``.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.reduction_param
        self.axis = check_axis(bottom[0], p.axis)
        self.operation, self.temporaries = p.operation, int(p.operation in (ASUM, SUMSQ))
        if p.operation == MEAN and not bottom[0].count(self.axis):
            raise LayerError(f"has no mean of no elements: the bottom's shape is {bottom[0].shape}, axis {self.axis}")
        self.coeff = p.coeff / (bottom[0].count(self.axis) if p.operation == MEAN else 1)
        top[0].reshape(bottom[0].shape[: self.axis])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
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


@layer_types.register("ArgMax")
class ArgMax(NoGradient):
    """The indices of the ``top_k`` largest elements, largest first; of equal elements, the higher index comes first.

    With ``axis``, the search runs along that axis: the top has the bottom's shape, with top_k elements along the axis.
    It holds indices, or with ``out_max_val`` the values in their place.

    Without ``axis``, the search runs over all elements of each item, numbered in Caffe's (C, H, W) order: the top is
    (N, 1, top_k) with indices, or with ``out_max_val`` (N, 2, top_k) with indices and then values. Axes of length 1
    are added at the end where the bottom has more than 3 axes.
    """

    integer_tops = (0,)
    temporaries = 3

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.argmax_param
        shape = bottom[0].shape
        check_n_axes(1, bottom[0])
        self.axis = check_axis(bottom[0], p.axis) if p.HasField("axis") else None
        n_candidates = bottom[0].count(1) if self.axis is None else shape[self.axis]
        if not 1 <= p.top_k <= n_candidates:
            raise LayerError(f"top_k must be 1 to {n_candidates} for a bottom of shape {shape}, got {p.top_k}")
        if self.axis is not None:
            top[0].reshape((*shape[: self.axis], p.top_k, *shape[self.axis + 1 :]))
        else:
            top[0].reshape((shape[0], 2 if p.out_max_val else 1, p.top_k) + (1,) * (len(shape) - 3))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.argmax_param
        x = bottom[0].data.astype(self.context.param_dtype, copy=False)  # CuPy sorts no bfloat16
        x = x.reshape(x.shape[0], bottom[0].count(1)) if self.axis is None else np.moveaxis(x, self.axis, -1)
        places = np.argsort(x, axis=-1, kind="stable")[..., ::-1][..., : p.top_k]
        values = np.take_along_axis(x, places, axis=-1)
        if self.axis is not None:
            np.moveaxis(top[0].data, self.axis, -1)[...] = values if p.out_max_val else places
        else:
            rows = np.stack([places, values] if p.out_max_val else [places], axis=1)
            top[0].data[...] = rows.reshape(top[0].shape)
