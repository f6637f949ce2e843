"""SPP: pooling over ever finer grids, one after another in a row (He, Zhang, Ren and Sun 2014; Caffe 1.0's shapes)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layers.blob import Blob
from layers.errors import LayerError
from layers.kernels.specs import PoolSpec
from layers.layer import Layer, layer_types

METHODS = ("MAX", "AVE", "STOCHASTIC")  # SPPParameter.PoolMethod


@layer_types.register("SPP")
class Spp(Layer):
    """Level l pools 2^l by 2^l bins; the top holds each item's bins, levels after one another: (N, all bins).

    With a pyramid of one level the top is that level's image, (N, C, 1, 1).
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Plan the levels. Raises LayerError for a bottom without 4 axes or smaller than its finest grid."""
        p, shape = self.param.spp_param, bottom[0].shape
        if len(shape) != 4 or p.pyramid_height < 1:
            raise LayerError(f"wants images and a pyramid_height of at least 1, got {shape} and {p.pyramid_height}")
        self.specs = [level_spec(shape, level, METHODS[p.pool], self.context.dtype)
                      for level in range(p.pyramid_height)]
        self.plans = [self.context.kernels.pooling(spec) for spec in self.specs]
        self.levels = [Blob(spec.out_shape, self.context.dtype) for spec in self.specs]
        if len(self.levels) == 1:
            top[0].reshape(self.levels[0].shape)
        else:
            top[0].reshape((shape[0], sum(level.count(1) for level in self.levels)))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Pool each level and put it in its place."""
        for plan, level, part in zip(self.plans, self.levels, self._parts(top[0].data)):
            plan.forward(bottom[0].data_storage, level.data_storage)
            np.copyto(part, level.data.reshape(part.shape))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Sum the levels' gradients."""
        if not propagate_down[0]:
            return
        share = np.empty_like(bottom[0].diff_storage)
        bottom[0].diff_flat[...] = 0
        for plan, level, part in zip(self.plans, self.levels, self._parts(top[0].diff)):
            level.diff[...] = part.reshape(level.shape)
            plan.backward(level.diff_storage, share)
            bottom[0].diff_storage[...] += share

    def _parts(self, array: np.ndarray) -> list[np.ndarray]:
        """Each level's columns of the top."""
        if len(self.levels) == 1:
            return [array]
        ends = np.cumsum([level.count(1) for level in self.levels])
        return np.split(array, ends[:-1], axis=1)


def level_spec(shape: Sequence[int], level: int, method: str, dtype: np.dtype) -> PoolSpec:
    """The pooling whose 2^level by 2^level windows cover the whole image, side by side, padded about evenly."""
    n_bins = 2**level
    kernel = tuple(-(-n // n_bins) for n in shape[2:])
    pad = tuple((k * n_bins - n + 1) // 2 for k, n in zip(kernel, shape[2:]))
    return PoolSpec(tuple(shape), method, kernel, kernel, pad, True, dtype)
