"""SPP: pooling over ever finer grids, one after another in a row (He, Zhang, Ren and Sun 2014; Caffe 1.0's shapes)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.pooling import Pooling


@layer_types.register("SPP")
class Spp(Layer):
    """Level l pools 2^l by 2^l bins; the top holds each item's bins, levels after one another: (N, all bins).

    With a pyramid of one level the top is that level's image, (N, C, 1, 1).
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Set up a pooling per level. Raises LayerError for a bottom without 4 axes or smaller than its finest grid."""
        height, shape = self.param.spp_param.pyramid_height, bottom[0].shape
        if len(shape) != 4 or height < 1:
            raise LayerError(f"wants images and a pyramid_height of at least 1, got {shape} and {height}")
        self.poolings, self.levels = [], []
        for number in range(height):  # the first one that is too fine ends it
            pooling, level = self._pooling(shape, number), self.context.blob()
            pooling.setup(bottom, [level])
            pooling.reshape(bottom, [level])
            self.poolings.append(pooling)
            self.levels.append(level)
        n_bins = sum(level.count(1) for level in self.levels)
        top[0].reshape(self.levels[0].shape if height == 1 else (shape[0], n_bins))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Pool each level and put it in its place."""
        for pooling, level, part in zip(self.poolings, self.levels, self._parts(top[0].data), strict=True):
            pooling.forward(bottom, [level])
            np.copyto(part, level.data.reshape(part.shape))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Sum the levels' gradients."""
        if not propagate_down[0]:
            return
        total = np.zeros_like(bottom[0].diff_flat)
        for pooling, level, part in zip(self.poolings, self.levels, self._parts(top[0].diff), strict=True):
            level.diff[...] = part.reshape(level.shape)
            pooling.backward([level], [True], bottom)
            total += bottom[0].diff_flat
        bottom[0].diff_flat[...] = total

    def _parts(self, array: np.ndarray) -> list[np.ndarray]:
        """Each level's columns of the top."""
        if len(self.levels) == 1:
            return [array]
        ends = np.cumsum([level.count(1) for level in self.levels])
        return np.split(array, ends[:-1].tolist(), axis=1)

    def _pooling(self, shape: Sequence[int], level: int) -> Pooling:
        """2^level by 2^level windows that cover the whole image, side by side, padded about evenly."""
        n_bins = 2**level
        kernel_h, kernel_w = kernel = [-(-n // n_bins) for n in shape[2:]]
        pad_h, pad_w = ((k * n_bins - n + 1) // 2 for k, n in zip(kernel, shape[2:], strict=True))
        message = type(self.param)()
        for name, value in (("kernel_h", kernel_h), ("kernel_w", kernel_w), ("stride_h", kernel_h),
                            ("stride_w", kernel_w), ("pad_h", pad_h), ("pad_w", pad_w),
                            ("pool", self.param.spp_param.pool)):  # the methods have the same numbers in both
            setattr(message.pooling_param, name, value)
        return Pooling(message, self.context)
