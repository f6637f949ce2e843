"""LRN, local response normalisation (Krizhevsky et al. 2012, 3.3); LCN, local contrast (Jarrett et al. 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.kernels.plans import PreparedCalls, prepared
from scaffe.layers.kernels.specs import LrnSpec

WITHIN_CHANNEL = 1


@layer_types.register("LRN")
class Lrn(Layer):
    """y = x (k + alpha / n · s)^-beta, where s is the sum of x^2 over a window of n elements around each element.

    With ACROSS_CHANNELS the window is local_size neighbouring channels; with WITHIN_CHANNEL it is local_size by
    local_size pixels of one channel, and k is 1 whatever the prototxt says, as in Caffe 1.0.

    Bottom and top: (N, C, H, W).

    Raises LayerError if local_size is even, the bottom does not have four axes, or the layer works in place.
    """

    by_image = recordable = repeatable = True

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        return bool(param.lrn_param.norm_region != WITHIN_CHANNEL)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self.param.lrn_param.local_size % 2 == 0:
            raise LayerError(f"local_size must be odd, got {self.param.lrn_param.local_size}")
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, shape = self.param.lrn_param, bottom[0].shape
        if len(shape) != 4:
            raise LayerError(f"takes images of four axes (N, C, H, W), got shape {shape}")
        within = p.norm_region == WITHIN_CHANNEL
        spec = LrnSpec(shape, p.local_size, p.alpha, p.beta, 1.0 if within else p.k, within, self.context.dtype)
        self._plan, self.temporaries = self.context.kernels.lrn(spec), 3 * within
        self.reads_tops = self._plan.reads_y
        top[0].reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._plan.forward(bottom[0].data_flat, top[0].data_flat)

    def prepare_calls(self, bottom: Sequence[Blob], top: Sequence[Blob], fused: bool) -> PreparedCalls | None:
        return prepared(self._plan, bottom[0].data_flat, top[0].data_flat)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            x, y = bottom[0], top[0]
            self._plan.backward(x.data_flat, y.data_flat, y.diff_flat, x.diff_flat)


@layer_types.register("LCN")
class Lcn(Layer):
    """y = v / max(s, least), where v = x - mean(x) and s = sqrt(mean(v^2)): each pixel beside its neighbourhood.

    Means are weighted by a Gaussian around the pixel, over local_size by local_size pixels of all channels, or with
    across_channels false of the pixel's own channel. At the image's edge the weights inside it are renormalised.
    (Jarrett, Kavukcuoglu, Ranzato and LeCun, "What is the Best Multi-Stage Architecture for Object
    Recognition?", ICCV 2009, section 2.1; a constant ``least`` as in Le et al., ICML 2012.)

    Bottom and top: (N, C, H, W).

    Raises LayerError if local_size is even, sigma or least is not above 0, the bottom does not have four axes, or the
    layer works in place.
    """

    temporaries, persistent_temporaries = 5, 1
    recordable = repeatable = True
    reads_bottoms = reads_tops = False

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.lcn_param
        if p.local_size % 2 == 0:
            raise LayerError(f"local_size must be odd, got {p.local_size}")
        if not (p.sigma > 0 and p.least > 0):
            raise LayerError(f"sigma and least must be above 0, got {p.sigma:g} and {p.least:g}")
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")
        weights = np.exp(-np.square(np.arange(p.local_size) - p.local_size // 2) / (2 * p.sigma**2))
        self._weights = weights / weights.sum()
        self._is_across = p.across_channels

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape, and see how much of each window lies in the image."""
        if bottom[0].ndim != 4:
            raise LayerError(f"takes images of four axes (N, C, H, W), got shape {bottom[0].shape}")
        top[0].reshape(bottom[0].shape)
        xp, (height, width) = self.context.xp, bottom[0].shape[2:]
        inside = self._window_sums(np.ones((1, 1, height, width)))
        self._inside = xp.asarray(inside.astype(self.context.dtype))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write the top; v and the divisor are kept for backward."""
        x = bottom[0].data
        self._v = x - self._mean(x)
        deviation = np.sqrt(self._mean(np.square(self._v)))
        self._divisor = np.maximum(deviation, deviation.dtype.type(self.param.lcn_param.least))
        self._is_least = deviation < self._divisor
        np.divide(self._v, self._divisor, out=top[0].data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write gx: through the quotient, the deviation where it is the divisor, and the mean that v lacks."""
        if not propagate_down[0]:
            return
        gy, v, divisor = top[0].diff, self._v, self._divisor
        of_divisor = -self._sum(gy * v) / np.square(divisor)
        of_squares = np.where(self._is_least, 0, of_divisor / (2 * divisor))
        gv = gy / divisor + 2 * v * self._turned_mean(of_squares)
        np.subtract(gv, self._turned_mean(self._sum(gv)), out=bottom[0].diff)

    def _mean(self, x: Any) -> Any:
        """The weighed mean around each pixel: (N, 1, H, W) over all channels, else (N, C, H, W)."""
        return self._window_sums(x.mean(1, keepdims=True) if self._is_across else x) / self._inside

    def _turned_mean(self, g: Any) -> Any:
        """The transpose of ``_mean``: of gradients of means, an equal share for each channel."""
        channels = self._v.shape[1] if self._is_across else 1
        return self._window_sums(g / self._inside) / channels

    def _sum(self, g: Any) -> Any:
        """Sum over the channels that share a mean."""
        return g.sum(1, keepdims=True) if self._is_across else g

    def _window_sums(self, x: Any) -> Any:
        """Weighted sums of windows, along columns and then rows; zeros outside of the image."""
        for axis in (2, 3):
            x = _weighed(x, self._weights, axis)
        return x


def _weighed(x: Any, weights: np.ndarray, axis: int) -> Any:
    """out[i] = sum over k of weights[k] x[i + k - half] along an axis."""
    half, length = len(weights) // 2, x.shape[axis]
    out = x * x.dtype.type(weights[half])
    for step in range(1, min(half, length - 1) + 1):
        ahead, behind = [slice(None)] * 4, [slice(None)] * 4
        ahead[axis], behind[axis] = slice(step, None), slice(None, length - step)
        weight = x.dtype.type(weights[half + step])
        out[tuple(behind)] += weight * x[tuple(ahead)]
        out[tuple(ahead)] += weight * x[tuple(behind)]
    return out
