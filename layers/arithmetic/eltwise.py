"""Eltwise, the sum, product or maximum of several blobs (Caffe 1.0); products of a blob with a smaller one: Axpy
(SENet's fork), BroadcastMul and MaskPooling, of forks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import same_memory
from scaffe.layers.base.bases import FusesRelu
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import Layer, layer_types

PROD, SUM, MAX = 0, 1, 2


@layer_types.register("Eltwise")
class Eltwise(FusesRelu):
    """Combines two or more bottoms of one shape, element by element (Caffe 1.0).

    SUM: y = coeff0 x0 + coeff1 x1 + ..., with coefficients 1 if none are given. PROD: y = x0 x1 ...
    MAX: y = max(x0, x1, ...).

    The gradient of PROD is gy times the product of the other bottoms; with stable_prod_grad false it is gy y / x, one
    division instead of the products, which fails where x is 0. The gradient of MAX goes to the bottom with the largest
    element. Where the first two bottoms tie, the second takes it; a later bottom takes it only if it is larger.

    Raises LayerError if the bottoms' shapes differ, coefficients are not one for each bottom or are given for PROD, or
    the layer works in place with PROD or MAX.
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


@layer_types.register("Axpy")
class Axpy(Layer):
    """a x + y, with ``a`` broadcast over the spatial axes.

    Bottoms: a, (N, C) or (N, C, 1, 1); x and y, both (N, C, ...). Top: a x + y, of x's shape.
    """

    n_bottoms = (3, 3)
    temporaries = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        a, x, y = (b.shape for b in bottom)
        if a[:2] != x[:2] or len(a) < 2 or bottom[0].count(2) != 1 or x != y:
            raise LayerError(f"wants bottoms (N, C), (N, C, ...) and the same again, got shapes {a}, {x}, {y}")
        self.factors = x[:2] + (1,) * (len(x) - 2)
        top[0].reshape(x)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        np.multiply(bottom[1].data, bottom[0].data.reshape(self.factors), out=top[0].data)
        top[0].data_flat[...] += bottom[2].data_flat

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        gy = top[0].diff
        if propagate_down[0]:
            sums = (gy * bottom[1].data).sum(axis=tuple(range(2, gy.ndim)))
            bottom[0].diff[...] = sums.reshape(bottom[0].shape)
        if propagate_down[1]:
            np.multiply(gy, bottom[0].data.reshape(self.factors), out=bottom[1].diff)
        if propagate_down[2]:
            bottom[2].diff_flat[...] = top[0].diff_flat


class _Product(Layer):
    """The base of both: top = x · factors, with the factors broadcast over some axes of x."""

    n_bottoms = (2, 2)
    keeps_bottom = True
    _order = (0, 1)  # which bottom is x, and which the factors; set by reshape if that depends on their shapes
    _spread: Shape  # set by reshape: the factors' shape with all axes of x
    temporaries = 2

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, factors = (bottom[i] for i in self._order)
        np.multiply(x.data, factors.data.reshape(self._spread), out=top[0].data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        (x, x_wanted), (factors, factors_wanted) = ((bottom[i], propagate_down[i]) for i in self._order)
        gy = top[0].diff
        if factors_wanted:
            summed = tuple(axis for axis, n in enumerate(self._spread) if n == 1)
            factors.diff[...] = (gy * x.data).sum(summed).reshape(factors.shape)
        if x_wanted:
            np.multiply(gy, factors.data.reshape(self._spread), out=x.diff)


@layer_types.register("BroadcastMul")
class BroadcastMul(_Product):
    """Each channel times its own factor (of forks with squeeze and excitation, broadcast_mul_layer.cpp).

    Bottoms, in either order: images (N, C, ...); factors, N C of them, such as (N, C, 1, 1). Top: as the images. (The
    fork's backward writes to the data; this one to the diffs.)
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._order = (0, 1) if bottom[0].n_elems > bottom[1].n_elems else (1, 0)
        x, factors = (bottom[i] for i in self._order)
        if x.ndim < 2 or factors.n_elems != x.count(0, 2) or top[0] in bottom:
            raise LayerError(f"wants images (N, C, ...), N C factors and a top of its own, got {bottom[0].shape} and "
                             f"{bottom[1].shape}")
        self._spread = (*x.shape[:2], *[1] * (x.ndim - 2))
        top[0].reshape(x.shape)


@layer_types.register("MaskPooling")
class MaskPooling(_Product):
    """Each pixel of all channels times the mask's (Dai, He and Sun, CVPR 2016; MNC's fork, mask_pooling_layer.cpp).

    Bottoms: images (N, C, H, W); masks (N, 1, H, W). Top: as the images.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, mask = bottom
        if x.ndim != 4 or mask.shape != (x.shape[0], 1, *x.shape[2:]) or top[0] in bottom:
            raise LayerError(f"wants images (N, C, H, W), masks (N, 1, H, W) and a top of its own, got {x.shape} and "
                             f"{mask.shape}")
        self._spread = mask.shape
        top[0].reshape(x.shape)
