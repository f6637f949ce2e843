"""Tile: a blob repeated along an axis (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_axis
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Tile")
class Tile(Layer):
    """``tiles`` copies of the bottom one after another along ``axis``."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top: ``axis`` is ``tiles`` times as long. Raises LayerError if either option is out of range."""
        p = self.param.tile_param
        axis = check_axis(bottom[0], p.axis)
        if p.tiles <= 0:
            raise LayerError(f"tiles must be at least 1, got {p.tiles}")
        shape = bottom[0].shape
        top[0].reshape((*shape[:axis], shape[axis] * p.tiles, *shape[axis + 1 :]))
        self._axis, self._tiled = axis, (*shape[:axis], p.tiles, *shape[axis:])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Copy the bottom ``tiles`` times."""
        np.copyto(top[0].data.reshape(self._tiled), np.expand_dims(bottom[0].data, self._axis))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the bottom's gradient: the sum over its copies."""
        if propagate_down[0]:
            np.sum(top[0].diff.reshape(self._tiled), axis=self._axis, out=bottom[0].diff)
