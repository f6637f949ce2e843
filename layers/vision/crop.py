"""Crop: one blob cut to the size of another (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_axis
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Crop")
class Crop(Layer):
    """Bottom 0 cut to the lengths that bottom 1 has along ``axis`` and all axes after it.

    ``offset`` is where the window begins: one number for all cropped axes, or one for each; 0 if not given.
    Bottom 1 only gives its shape.
    """

    n_bottoms = (2, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Place the window and shape the top. Raises LayerError if the window does not fit into bottom 0."""
        p = self.param.crop_param
        axis = check_axis(bottom[0], p.axis)
        n_cropped = bottom[0].ndim - axis
        offsets = list(p.offset) or [0]
        if len(offsets) not in (1, n_cropped):
            raise LayerError(f"wants 1 offset or {n_cropped} (one per axis from {axis} on), got {len(offsets)}")
        offsets *= n_cropped // len(offsets)
        shape = bottom[0].shape
        wanted = bottom[1].shape[axis : bottom[0].ndim]
        if len(wanted) != n_cropped or any(o + w > n for o, w, n in zip(offsets, wanted, shape[axis:], strict=True)):
            raise LayerError(f"a crop of {wanted} at {tuple(offsets)} does not fit {shape[axis:]}")
        self.window = (slice(None),) * axis + tuple(slice(o, o + w) for o, w in zip(offsets, wanted, strict=True))
        top[0].reshape((*shape[:axis], *wanted))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Copy the window to the top."""
        np.copyto(top[0].data, bottom[0].data[self.window])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradient of bottom 0: the top's inside the window, 0 outside; that of bottom 1 is 0."""
        if propagate_down[0]:
            bottom[0].diff_flat[...] = 0
            bottom[0].diff[self.window] = top[0].diff
        if propagate_down[1]:
            bottom[1].diff_flat[...] = 0
