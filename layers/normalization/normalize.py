"""Normalize: scales vectors to L2 norm 1, then by a learned factor (ParseNet, Liu et al. 2015; SSD's fork of Caffe)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_n_axes
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Normalize")
class Normalize(Layer):
    """y = scale x / sqrt(sum(x^2) + eps).

    The sum runs over the channels at each position, or with across_spatial over all elements of an item.

    Blobs: one learned scale for each channel, (C,), or with channel_shared one for all, (); 1 without scale_filler.

    The gradient is exact. That of SSD's fork differs for scales that differ from channel to channel: it leaves one term
    unscaled.
    """

    temporaries, lasting = 4, 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the scales. Raises LayerError if the bottom has fewer than 2 axes."""
        check_n_axes(2, bottom[0])
        p = self.param.norm_param
        filler = p.scale_filler if p.HasField("scale_filler") else None
        blob = self.add_blob(() if p.channel_shared else bottom[0].shape[1:2], filler)
        if filler is None:
            blob.data[...] = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape. Raises LayerError if the channels do not fit the scales."""
        check_n_axes(2, bottom[0])
        p, shape = self.param.norm_param, bottom[0].shape
        if not p.channel_shared and shape[1] != self.blobs[0].n_elems:
            raise LayerError(f"has scales for {self.blobs[0].n_elems} channels, got shape {shape}")
        self.axes = tuple(range(1, len(shape))) if p.across_spatial else (1,)
        top[0].reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write y."""
        x = bottom[0].data
        squares = np.square(x).sum(axis=self.axes, keepdims=True)
        self._norm = np.sqrt(squares + squares.dtype.type(self.param.norm_param.eps))
        self._unit = x / self._norm
        np.multiply(self._unit, self._scales(x), out=top[0].data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add the scales' gradients; write gx = (g - u sum(u g)) / norm, where g = scale gy and u = x / norm."""
        gy = top[0].diff
        if self.param_propagate_down[0]:
            others = None if self.blobs[0].ndim == 0 else tuple(a for a in range(gy.ndim) if a != 1)
            self.blobs[0].diff[...] += (gy * self._unit).sum(axis=others)
        if propagate_down[0]:
            scaled = gy * self._scales(gy)
            inward = (scaled * self._unit).sum(axis=self.axes, keepdims=True)
            np.divide(scaled - self._unit * inward, self._norm, out=bottom[0].diff)

    def _scales(self, x: np.ndarray) -> np.ndarray:
        return self.blobs[0].data.reshape((-1,) + (1,) * (x.ndim - 2))
