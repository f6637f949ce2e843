"""Split: one blob as the bottom of several layers (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Split")
class Split(Layer):
    """Each top shares the bottom's data; the bottom's gradient is the sum of the tops'."""

    recordable = True
    n_tops = (1, None)
    shares_data = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the tops the bottom's shape. Raises LayerError if a top is the bottom."""
        for blob in top:
            if blob is bottom[0]:
                raise LayerError("cannot work in place")
            blob.reshape(bottom[0].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Let each top share the bottom's memory."""
        for blob in top:
            blob.share_data(bottom[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the sum of the tops' gradients."""
        if not propagate_down[0]:
            return
        out = bottom[0].diff_flat
        if len(top) == 1:
            out[...] = top[0].diff_flat
            return
        np.add(top[0].diff_flat, top[1].diff_flat, out=out)
        for blob in top[2:]:
            out += blob.diff_flat
