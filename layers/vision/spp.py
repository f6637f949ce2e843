"""SPP, spatial pyramid pooling: pooling over ever finer grids, with the results joined.

Source: He, Zhang, Ren and Sun 2014; shapes as in Caffe 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.vision.pooling import Pooling


@layer_types.register("SPP")
class Spp(Layer):
    """Pools each image at pyramid_height levels; level l divides it into 2^l by 2^l bins.

    Bottom: (N, C, H, W). Top: (N, K), for each item the C 4^l results of level 0, then those of level 1, and so on.
    With one level the top is (N, C, 1, 1).
    """

    temporaries = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Set up a pooling for each level. Raises LayerError if the bottom is not 4 axes or too small for a level."""
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
        """Pool each level and copy it to its part of the top."""
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
        """The part of the top that belongs to each level."""
        if len(self.levels) == 1:
            return [array]
        ends = np.cumsum([level.count(1) for level in self.levels])
        return np.split(array, ends[:-1].tolist(), axis=1)

    def _pooling(self, shape: Sequence[int], level: int) -> Pooling:
        """The pooling of one level: 2^level by 2^level windows side by side; padding makes the image fill them."""
        n_bins = 2**level
        kernel_h, kernel_w = kernel = [-(-n // n_bins) for n in shape[2:]]
        pad_h, pad_w = ((k * n_bins - n + 1) // 2 for k, n in zip(kernel, shape[2:], strict=True))
        message = type(self.param)()
        for name, value in (("kernel_h", kernel_h), ("kernel_w", kernel_w), ("stride_h", kernel_h),
                            ("stride_w", kernel_w), ("pad_h", pad_h), ("pad_w", pad_w),
                            ("pool", self.param.spp_param.pool)):  # the methods have the same numbers in both
            setattr(message.pooling_param, name, value)
        return Pooling(message, self.context)
