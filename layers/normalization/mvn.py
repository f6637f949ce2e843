"""MVN: scales each channel of each image to mean 0 and variance 1 (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
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
        """Write y."""
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
