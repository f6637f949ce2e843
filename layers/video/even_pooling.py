"""Pooling of clips and volumes by windows as long along every axis (yjxiong/caffe's nets of three dimensions)."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.windows import check_window, refuse_times
from scaffe.layers.video.pooling3d import NdPooling

FLOOR = 1  # PoolingParameter.RoundMode
PAIRS = ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w")


class EvenPooling(NdPooling):
    """What a Pooling is on a bottom of five axes: kernel_size, stride and pad hold for each of the last three.

    Bottom: (N, C, frames, H, W). Top: (N, C, frames', H', W'), lengths as for Pooling.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the options. Raises LayerError for a window that is missing or differs from axis to axis."""
        p, n_axes = self.param.pooling_param, bottom[0].ndim - 2
        refuse_times(p, "a Pooling of clips has one kernel_size")
        pairs = [name for name in PAIRS if p.HasField(name)]
        if pairs:
            raise LayerError(f"takes one kernel_size, stride and pad for {n_axes} spatial axes, got {pairs[0]}; "
                             "NdPooling takes one an axis")
        self._method, self._kernel = self.method(), (p.kernel_size,) * n_axes
        self._stride, self._pad = (p.stride,) * n_axes, (p.pad,) * n_axes
        if not p.global_pooling:
            check_window(1, kernel_size=self._kernel, stride=self._stride)

    def _n_windows(self, length: int, kernel: int, stride: int, pad: int) -> int:
        if self.param.pooling_param.round_mode == FLOOR:
            return (length + 2 * pad - kernel) // stride + 1
        return super()._n_windows(length, kernel, stride, pad)
