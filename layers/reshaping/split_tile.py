"""Split and Tile: one blob for several layers, and repeated along an axis (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Split")
class Split(Layer):
    """Each top shares the bottom's data; the bottom's gradient is the sum of the tops'.

    The sum's pass can include the backward of an in-place ReLU of slope 0 before this layer.

    Attributes:
        includes_relu: whether it does. The bottom's gradient is then 0 where its data are not above 0.
    """

    includes_relu = False

    by_image = recordable = repeatable = True
    reads_bottoms = reads_tops = False
    n_tops = (1, None)
    shares_data = idle_in_place = True
    has_half_kernels = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob in top:
            if blob is bottom[0]:
                raise LayerError("cannot work in place")
            blob.reshape(bottom[0].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob in top:
            blob.share_data(bottom[0])

    def include_relu(self, own_diffs: bool) -> bool:
        self.includes_relu = self.reads_bottoms = len(self.param.top) > 1
        return self.includes_relu

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        out = bottom[0].diff_flat
        if len(top) == 1:
            out[...] = top[0].diff_flat
            return
        signs = bottom[0].data_flat if self.includes_relu else None
        self.context.kernels.add_up([blob.diff_flat for blob in top], out, signs)


@layer_types.register("Tile")
class Tile(Layer):
    """``tiles`` copies of the bottom one after another along ``axis``."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.tile_param
        axis = check_axis(bottom[0], p.axis)
        if p.tiles <= 0:
            raise LayerError(f"tiles must be at least 1, got {p.tiles}")
        shape = bottom[0].shape
        top[0].reshape((*shape[:axis], shape[axis] * p.tiles, *shape[axis + 1 :]))
        self._axis, self._tiled = axis, (*shape[:axis], p.tiles, *shape[axis:])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        np.copyto(top[0].data.reshape(self._tiled), np.expand_dims(bottom[0].data, self._axis))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the bottom's gradient: the sum over its copies."""
        if propagate_down[0]:
            np.sum(top[0].diff.reshape(self._tiled), axis=self._axis, out=bottom[0].diff)
