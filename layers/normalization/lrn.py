"""Local response normalisation (Krizhevsky, Sutskever and Hinton 2012, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.kernels.plans import ReadyCalls, bound
from scaffe.layers.kernels.specs import LrnSpec

WITHIN_CHANNEL = 1


@layer_types.register("LRN")
class Lrn(Layer):
    """y = x (k + alpha / n · s)^-beta, where s is the sum of x^2 over a window of n elements around each element.

    With ACROSS_CHANNELS the window is local_size neighbouring channels; with WITHIN_CHANNEL it is local_size by
    local_size pixels of one channel, and k is 1 whatever the prototxt says, as in Caffe 1.0.

    Bottom and top: (N, C, H, W).

    Raises:
        LayerError: local_size is even, the bottom does not have four axes, or the layer works in place.
    """

    by_image = recordable = repeatable = True

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        """See Layer."""
        return bool(param.lrn_param.norm_region != WITHIN_CHANNEL)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Check the options."""
        if self.param.lrn_param.local_size % 2 == 0:
            raise LayerError(f"local_size must be odd, got {self.param.lrn_param.local_size}")
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape and plan the kernels."""
        p, shape = self.param.lrn_param, bottom[0].shape
        if len(shape) != 4:
            raise LayerError(f"takes images of four axes (N, C, H, W), got shape {shape}")
        within = p.norm_region == WITHIN_CHANNEL
        spec = LrnSpec(shape, p.local_size, p.alpha, p.beta, 1.0 if within else p.k, within, self.context.dtype)
        self._plan, self.temporaries = self.context.kernels.lrn(spec), 3 * within
        self.reads_tops = self._plan.reads_y
        top[0].reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write the top."""
        self._plan.forward(bottom[0].data_flat, top[0].data_flat)

    def bind(self, bottom: Sequence[Blob], top: Sequence[Blob], fused: bool) -> ReadyCalls | None:
        """See Layer."""
        return bound(self._plan, bottom[0].data_flat, top[0].data_flat)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the bottom's gradient."""
        if propagate_down[0]:
            x, y = bottom[0], top[0]
            self._plan.backward(x.data_flat, y.data_flat, y.diff_flat, x.diff_flat)
