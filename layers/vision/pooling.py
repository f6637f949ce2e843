"""Pooling of images: MAX, AVE and STOCHASTIC (Caffe 1.0), and SPP, over ever finer grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.kernel_geometry import check_geometry, refuse_times
from scaffe.layers.base.layer import TRAIN, Layer, layer_types
from scaffe.layers.kernels.plans import (
    AveragingPlan,
    PoolingPlan,
    PreparedCalls,
    ReluPoolingPlan,
    StochasticPoolingPlan,
    prepared,
)
from scaffe.layers.kernels.specs import PoolSpec
from scaffe.layers.video.clips import EvenPooling

METHODS = ("MAX", "AVE", "STOCHASTIC")
CLIP_AXES = 5


@layer_types.register("Pooling")
class Pooling(Layer):
    """Reduces each window of each channel to one number (Caffe 1.0's behaviour).

    Bottom: (N, C, H, W). Top: (N, C, H', W') with H' = (H + 2 pad - kernel) / stride + 1, rounded up, or down if
    round_mode says so; W' likewise. A last window that would start in the padding is left out.

    MAX takes the largest element. An optional second top, of the first one's shape, holds where it was in the image,
    as h W + w. AVE takes the mean; the padding counts as zeros. STOCHASTIC draws one element of the window in training,
    with probability proportional to its value, and in testing takes the mean with these probabilities as weights
    (Zeiler and Fergus, ICLR 2013).

    A bottom of five axes is pooled by ``EvenPooling``.

    The backward of a ReLU in front of MAX, in place and of slope 0, can be part of it: an element that is no window's
    largest gets no gradient anyway, and one that is has the window's output, which tells whether it is above 0. It can
    be part of AVE's, too (``mask_average``).

    Attributes:
        includes_relu: whether it is, of MAX's. Backward then overwrites the tops' diffs, unless the plan includes the
            ReLU: it then chooses no element of a window whose output is not above 0, and backward reads no data.

    Raises LayerError if the window is missing, given twice or does not fit; the bottom does not have four axes; or an
    option does not go with the method.
    """

    includes_relu = False

    by_image = recordable = True
    reads_bottoms = reads_tops = False
    n_tops = (1, 2)
    integer_tops = (1,)

    @classmethod
    def form(cls, param: Any, bottom: Sequence[Blob]) -> type[Layer]:
        return EvenPooling if len(bottom) == 1 and bottom[0].ndim == CLIP_AXES else cls

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        return METHODS[param.pooling_param.pool] != "STOCHASTIC" and len(param.top) == 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.pooling_param
        refuse_times(p, "Pooling takes images")
        self._method = METHODS[p.pool]
        self.repeatable = self._method != "STOCHASTIC"  # which draws anew
        if len(top) > 1 and self._method != "MAX":
            raise LayerError(f"only MAX pooling has a second top, the mask; this is {self._method}")
        if bottom[0].ndim != 4:
            raise LayerError(f"takes images of four axes (N, C, H, W), got shape {bottom[0].shape}")
        if p.global_pooling and (p.HasField("kernel_size") or p.HasField("kernel_h") or p.HasField("kernel_w")):
            raise LayerError("global_pooling takes the whole image; give no kernel size with it")
        self._stride, self._pad = window_pair(p, "stride", 1), window_pair(p, "pad", 0)
        if p.global_pooling and (self._pad != (0, 0) or self._stride != (1, 1)):
            raise LayerError("global_pooling goes with pad 0 and stride 1 only")
        if self._method == "STOCHASTIC" and self._pad != (0, 0):
            raise LayerError(f"STOCHASTIC pooling has no pad, got {self._pad}")
        self._kernel = None if p.global_pooling else window_pair(p, "kernel", None)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = bottom[0].shape
        if len(shape) != 4:
            raise LayerError(f"takes images of four axes (N, C, H, W), got shape {shape}")
        spec = PoolSpec(shape, self._method, self._kernel or shape[2:], self._stride, self._pad,
                        self.param.pooling_param.round_mode == 0, self.context.dtype)
        for blob in top:
            blob.reshape(spec.out_shape)
        kernels = self.context.kernels
        self._plan: PoolingPlan | StochasticPoolingPlan
        if self._method == "STOCHASTIC":
            self._plan = self._stochastic = kernels.stochastic_pooling(spec)
            self._draws = kernels.uniform(spec.out_shape, True, self.context.draws, self.context.dtype)
        else:
            self._plan = self._pool = kernels.pooling(spec, len(top) > 1)
            self._share_relu()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = bottom[0].data_flat, top[0].data_flat
        if self._method == "STOCHASTIC":
            self._stochastic.forward_stochastic(x, y, self._draws.next() if self.context.phase == TRAIN else None)
        else:
            self._pool.forward(x, y, top[1].data_flat if len(top) > 1 else None)

    def prepare_calls(self, bottom: Sequence[Blob], top: Sequence[Blob], fused: bool) -> PreparedCalls | None:
        if self._method == "STOCHASTIC" or len(top) > 1:
            return None
        return prepared(self._pool, bottom[0].data_flat, top[0].data_flat)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Each output's gradient goes to the elements that it was computed from."""
        if propagate_down[0]:
            if self._method == "STOCHASTIC" and self.context.phase != TRAIN:
                raise LayerError("STOCHASTIC pooling has a gradient in training only")
            if self.reads_tops:
                y, gy = top[0].data_flat, top[0].diff_flat
                self.context.kernels.relu_backward(y, gy, gy, 0.0)
            if self.reads_bottoms and isinstance(self._plan, AveragingPlan):
                self._plan.backward_average(top[0].diff_flat, bottom[0].diff_flat, bottom[0].data_flat)
            else:
                self._plan.backward(top[0].diff_flat, bottom[0].diff_flat)

    def include_relu(self, own_diffs: bool) -> bool:
        self.includes_relu = own_diffs and self._method == "MAX"
        self._share_relu()
        return self.includes_relu

    def mask_average(self) -> bool:
        """As ``include_relu``, for AVE: backward then reads the bottom's data."""
        self.reads_bottoms = self._method == "AVE" and isinstance(self._plan, AveragingPlan)
        return self.reads_bottoms

    def _share_relu(self) -> None:
        """Leave the ReLU's backward, if it is included, to the plan, where that can do it."""
        self.reads_tops = self.includes_relu
        if self.includes_relu and isinstance(self._pool, ReluPoolingPlan):
            self._pool.include_relu()
            self.reads_tops = False


def window_pair(p: Any, name: str, default: int | None) -> tuple[int, int]:
    """One of the window's options as (h, w), from its one field (``kernel_size``, ``stride``) or from its _h and _w."""
    whole = "kernel_size" if name == "kernel" else name
    given = [p.HasField(f) for f in (whole, f"{name}_h", f"{name}_w")]
    if given[0] and (given[1] or given[2]) and (name != "kernel" or given[1] == given[2]):
        raise LayerError(f"give {whole} or {name}_h and {name}_w, not both")
    if given[1] != given[2] and not given[0]:
        raise LayerError(f"{name}_h and {name}_w go together")
    if given[1] and not given[0]:
        values = (int(getattr(p, f"{name}_h")), int(getattr(p, f"{name}_w")))
    elif given[0]:
        values = (int(getattr(p, whole)),) * 2
    elif default is None:
        raise LayerError("needs kernel_size, or kernel_h and kernel_w")
    else:
        values = (default, default)
    check_geometry(0 if name == "pad" else 1, **{whole: values})
    return values


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
        for number in range(height):  # the first level that is too fine raises
            pooling, level = self._pooling(shape, number), self.context.blob()
            pooling.setup(bottom, [level])
            pooling.reshape(bottom, [level])
            self.poolings.append(pooling)
            self.levels.append(level)
        n_bins = sum(level.count(1) for level in self.levels)
        top[0].reshape(self.levels[0].shape if height == 1 else (shape[0], n_bins))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for pooling, level, part in zip(self.poolings, self.levels, self._parts(top[0].data), strict=True):
            pooling.forward(bottom, [level])
            np.copyto(part, level.data.reshape(part.shape))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
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
