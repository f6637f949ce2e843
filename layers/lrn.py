"""Local response normalisation (Krizhevsky, Sutskever and Hinton 2012, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.kernels.specs import LrnSpec

WITHIN_CHANNEL = 1


@layer_types.register("LRN")
class Lrn(Layer):
    """y = x (k + alpha / n · sum of squares)^-beta, over local_size channels or a square window in one channel.

    n is the number of elements of the window. WITHIN_CHANNEL takes k = 1 whatever is given, as Caffe 1.0 does.

    Raises:
        LayerError: an even local_size, a bottom that is not four axes, or in place.
    """

    recordable = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Check the window."""
        if self.param.lrn_param.local_size % 2 == 0:
            raise LayerError(f"local_size must be odd, got {self.param.lrn_param.local_size}")
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Top as the bottom."""
        p, shape = self.param.lrn_param, bottom[0].shape
        if len(shape) != 4:
            raise LayerError(f"takes images of four axes (N, C, H, W), got shape {shape}")
        within = p.norm_region == WITHIN_CHANNEL
        spec = LrnSpec(shape, p.local_size, p.alpha, p.beta, 1.0 if within else p.k, within, self.context.dtype)
        self._plan = self.context.kernels.lrn(spec)
        top[0].reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write the top."""
        self._plan.forward(bottom[0].data_flat, top[0].data_flat)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the bottom's gradient."""
        if propagate_down[0]:
            x, y = bottom[0], top[0]
            self._plan.backward(x.data_flat, y.data_flat, y.diff_flat, x.diff_flat)
