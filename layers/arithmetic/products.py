"""Products of a blob with a smaller one: Axpy (SENet's fork), BroadcastMul and MaskPooling, of forks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import Layer, layer_types


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
