"""Dropout (Srivastava et al. 2014; Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import is_plain, same_memory
from scaffe.layers.base.bases import Neuron
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TRAIN, layer_types


@layer_types.register("Dropout")
class Dropout(Neuron):
    """Training sets each element to 0 with probability dropout_ratio and scales the others by 1 / (1 - dropout_ratio).

    In testing y = x. With ``scale_train: false`` (Fast R-CNN's fork) training does not scale, and testing multiplies by
    1 - dropout_ratio; with ``sample_weights_test`` (SegNet's fork) testing is as training. On the CPU the random
    numbers are Caffe 1.0's: one raw 32-bit draw for each element, in Caffe's (N, C, H, W) order; the element is kept if
    the draw is at most (1 - ratio) (2^32 - 1), compared in float32.

    Raises LayerError if dropout_ratio is below 0, or is not below 1.
    """

    recordable = repeatable = True
    reads_bottoms = reads_tops = False
    has_half_kernels = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        ratio = np.float32(self.param.dropout_param.dropout_ratio)
        if not 0 <= ratio < 1:
            raise LayerError(f"dropout_ratio must be at least 0 and below 1, got {ratio:g}")
        self._ratio, self._scales = float(ratio), self.param.dropout_param.scale_train
        self._draws = self.context.phase == TRAIN or self.param.dropout_param.sample_weights_test
        self.by_image = not self._draws
        self.idle_in_place = not self._draws and self._scales

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self._plan = self.context.kernels.dropout(bottom[0].shape, not is_plain(bottom[0]), self._ratio,
                                                  self.context.draws, self.context.dtype, self._scales)

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        """Draw which elements are kept, and write y."""
        if self._draws:
            self._plan.forward(x, y)
        else:
            self._pass(x, y)

    def forward_again(self, bottom: Sequence[Blob], top: Sequence[Blob], fused: bool) -> None:
        """See Layer: with the mask of the last forward."""
        self.differentiate(bottom[0].data_flat, top[0].data_flat, bottom[0].data_flat, top[0].data_flat)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        if self._draws:
            self._plan.backward(gy, gx)
        else:
            self._pass(gy, gx)

    def _pass(self, values: np.ndarray, out: np.ndarray) -> None:
        """What testing does with values and gradients; ``out`` may be ``values``."""
        if not self._scales:
            np.multiply(values, values.dtype.type(1 - self._ratio), out=out)
        elif not same_memory(values, out):
            np.copyto(out, values)
