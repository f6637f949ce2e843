"""Eltwise: the sum, product or maximum of several blobs, element by element (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import FusesRelu
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.base.layout import same_memory

PROD, SUM, MAX = 0, 1, 2


@layer_types.register("Eltwise")
class Eltwise(FusesRelu):
    """Combines two or more bottoms of one shape, element by element (Caffe 1.0).

    SUM: y = coeff0 x0 + coeff1 x1 + ..., with coefficients 1 if none are given. PROD: y = x0 x1 ...
    MAX: y = max(x0, x1, ...).

    The gradient of PROD is gy times the product of the other bottoms; with stable_prod_grad false it is gy y / x, one
    division instead of the products, which fails where x is 0. The gradient of MAX goes to the bottom with the largest
    element. Where the first two bottoms tie, the second takes it; a later bottom takes it only if it is larger.

    Raises:
        LayerError: the bottoms' shapes differ, coefficients are not one for each bottom or are given for PROD, or the
            layer works in place with PROD or MAX.
    """

    by_image = recordable = repeatable = True
    n_bottoms = (2, None)

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        return param.eltwise_param.operation == SUM and all(c == 1 for c in param.eltwise_param.coeff)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.eltwise_param
        self._operation = p.operation
        if len(p.coeff) not in (0, len(bottom)):
            raise LayerError(f"takes one coeff a bottom: {len(bottom)} bottoms, {len(p.coeff)} coeff")
        if len(p.coeff) and self._operation == PROD:
            raise LayerError("takes coeff for SUM only, this is PROD")
        self._coeffs = [self.context.dtype.type(c) for c in p.coeff] or [self.context.dtype.type(1)] * len(bottom)
        self.reads_bottoms = self.reads_tops = self._operation == PROD
        self.passes_diff = self._operation == SUM and all(c == 1 for c in self._coeffs)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob in bottom[1:]:
            if blob.shape != bottom[0].shape:
                raise LayerError(f"all bottoms must have one shape, got {bottom[0].shape} and {blob.shape}")
        if top[0] is not bottom[0]:
            top[0].reshape(bottom[0].shape)
        elif self._operation != SUM:
            raise LayerError("works in place for SUM only")
        if self._operation == MAX:
            self._winners = self.context.kernels.zeros(bottom[0].n_elems, np.int32)

    @property
    def adds_two(self) -> bool:
        """Whether it is the sum of two bottoms with coefficients 1."""
        return self._operation == SUM and self._coeffs == [1, 1]

    def fuse(self, following: Layer) -> bool:
        return self.adds_two and super().fuse(following)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        xs, y = [blob.data_flat for blob in bottom], top[0].data_flat
        if relu_slope is not None:
            self.context.kernels.add_relu(xs[0], xs[1], y, relu_slope)
        elif self._operation == SUM:
            self._add(xs, y)
        elif self._operation == PROD:
            np.multiply(xs[0], xs[1], out=y)
            for x in xs[2:]:
                y *= x
        else:
            self._maximum(xs, y)

    def _add(self, xs: list[np.ndarray], y: np.ndarray) -> None:
        if self.passes_diff:
            self.context.kernels.add_up(xs, y)
            return
        if all(c == 1 for c in self._coeffs[:2]):
            np.add(xs[0], xs[1], out=y)
        else:
            np.add(self._coeffs[0] * xs[0], self._coeffs[1] * xs[1], out=y)
        for c, x in zip(self._coeffs[2:], xs[2:], strict=True):
            y += x if c == 1 else c * x

    def _maximum(self, xs: list[np.ndarray], y: np.ndarray) -> None:
        np.less_equal(xs[0], xs[1], out=self._winners, casting="unsafe")
        np.maximum(xs[0], xs[1], out=y)
        for i, x in enumerate(xs[2:], 2):
            self._winners[x > y] = i
            np.maximum(x, y, out=y)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        gy = top[0].diff_flat
        for i in reversed(range(len(bottom))):  # bottom 0 last: in place its gradient is gy's own memory
            blob = bottom[i]
            if not propagate_down[i]:
                continue
            gx = blob.diff_flat
            if self._operation == SUM:
                if self._coeffs[i] != 1:
                    np.multiply(gy, self._coeffs[i], out=gx)
                elif not same_memory(gx, gy):
                    self.context.kernels.copy_part(gx, gy)
            elif self._operation == PROD:
                self._differentiate_product(i, bottom, top[0].data_flat, gx)
                gx *= gy
            else:
                np.multiply(gy, self._winners == i, out=gx)

    def _differentiate_product(self, i: int, bottom: Sequence[Blob], y: np.ndarray, gx: np.ndarray) -> None:
        if not self.param.eltwise_param.stable_prod_grad:
            np.divide(y, bottom[i].data_flat, out=gx)
            return
        others = [blob.data_flat for j, blob in enumerate(bottom) if j != i]
        np.copyto(gx, others[0])
        for x in others[1:]:
            gx *= x
