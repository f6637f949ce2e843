"""MVN, mean 0 and variance 1 (Caffe 1.0); Normalize, L2 norm 1 (ParseNet, Liu et al. 2015; SSD's fork of Caffe)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_n_axes
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("MVN")
class Mvn(Layer):
    """y = (x - mean) / (std + eps), or x - mean if normalize_variance is false.

    Mean and standard deviation are those of each channel of each item, or with across_channels those of each item.

    Bottom: at most 4 axes. Top: 4 axes, those that the bottom lacks of length 1, as in Caffe.

    The gradient is Caffe's, which leaves out the factor (std + eps) / std in one term. For an eps far below std that
    factor is close to 1.
    """

    temporaries = 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top to four axes. Raises LayerError if the bottom has more."""
        shape = bottom[0].shape
        if len(shape) > 4:
            raise LayerError(f"wants a bottom of at most 4 axes, got shape {shape}")
        p = self.param.mvn_param
        self.axes = (1, 2, 3) if p.across_channels else (2, 3)
        self.scales = p.normalize_variance
        top[0].reshape(shape + (1,) * (4 - len(shape)))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = bottom[0].data.reshape(top[0].shape), top[0].data
        np.subtract(x, x.mean(axis=self.axes, keepdims=True), out=y)
        if self.scales:
            deviation = np.sqrt(np.square(y).mean(axis=self.axes, keepdims=True))
            self._divisor = deviation + deviation.dtype.type(self.param.mvn_param.eps)
            y /= self._divisor

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """gx = (gy - mean(gy) - y mean(gy y)) / (std + eps); without normalize_variance gx = gy - mean(gy)."""
        if not propagate_down[0]:
            return
        y, gy = top[0].data, top[0].diff
        gradient = gy - gy.mean(axis=self.axes, keepdims=True)
        if self.scales:
            gradient -= y * (gy * y).mean(axis=self.axes, keepdims=True)
            gradient /= self._divisor
        bottom[0].diff[...] = gradient.reshape(bottom[0].shape)


@layer_types.register("Normalize")
class Normalize(Layer):
    """y = scale x / sqrt(sum(x^2) + eps).

    The sum runs over the channels at each position, or with across_spatial over all elements of an item.

    Blobs: one learned scale for each channel, (C,), or with channel_shared one for all, (); 1 without scale_filler.

    The gradient is exact. That of SSD's fork differs for scales that differ from channel to channel: it leaves one term
    unscaled.
    """

    temporaries, persistent_temporaries = 4, 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        check_n_axes(2, bottom[0])
        p = self.param.norm_param
        filler = p.scale_filler if p.HasField("scale_filler") else None
        blob = self.add_blob(() if p.channel_shared else bottom[0].shape[1:2], filler)
        if filler is None:
            blob.data[...] = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        check_n_axes(2, bottom[0])
        p, shape = self.param.norm_param, bottom[0].shape
        if not p.channel_shared and shape[1] != self.blobs[0].n_elems:
            raise LayerError(f"has scales for {self.blobs[0].n_elems} channels, got shape {shape}")
        self.axes = tuple(range(1, len(shape))) if p.across_spatial else (1,)
        top[0].reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
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
