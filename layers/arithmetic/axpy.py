"""Axpy: a x + y with one factor a for each item and channel (SENet's fork of Caffe)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Axpy")
class Axpy(Layer):
    """a x + y, with ``a`` broadcast over the spatial axes.

    Bottoms: a, (N, C) or (N, C, 1, 1); x and y, both (N, C, ...). Top: a x + y, of x's shape.
    """

    n_bottoms = (3, 3)
    temporaries = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top x's shape. Raises LayerError if the bottoms' shapes do not fit together."""
        a, x, y = (b.shape for b in bottom)
        if a[:2] != x[:2] or len(a) < 2 or bottom[0].count(2) != 1 or x != y:
            raise LayerError(f"wants bottoms (N, C), (N, C, ...) and the same again, got shapes {a}, {x}, {y}")
        self.factors = x[:2] + (1,) * (len(x) - 2)
        top[0].reshape(x)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute a x + y."""
        np.multiply(bottom[1].data, bottom[0].data.reshape(self.factors), out=top[0].data)
        top[0].data_flat[...] += bottom[2].data_flat

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradients: of a, gy x summed over the spatial axes; of x, a gy; of y, gy (gy is the top's)."""
        gy = top[0].diff
        if propagate_down[0]:
            sums = (gy * bottom[1].data).sum(axis=tuple(range(2, gy.ndim)))
            bottom[0].diff[...] = sums.reshape(bottom[0].shape)
        if propagate_down[1]:
            np.multiply(gy, bottom[0].data.reshape(self.factors), out=bottom[1].diff)
        if propagate_down[2]:
            bottom[2].diff_flat[...] = top[0].diff_flat
