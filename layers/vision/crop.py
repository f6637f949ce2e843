"""Crop: one blob cut to the size of another (Caffe 1.0); MergeCrop: beside it, as in U-Net (Ronneberger et al.
2015)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Crop")
class Crop(Layer):
    """Bottom 0 cut to the lengths that bottom 1 has along ``axis`` and all axes after it.

    ``offset`` is where the window begins: one number for all cropped axes, or one for each; 0 if not given.
    Bottom 1 only gives its shape.
    """

    n_bottoms = (2, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
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
        np.copyto(top[0].data, bottom[0].data[self.window])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradient of bottom 0: the top's inside the window, 0 outside; that of bottom 1 is 0."""
        if propagate_down[0]:
            bottom[0].diff_flat[...] = 0
            bottom[0].diff[self.window] = top[0].diff
        if propagate_down[1]:
            bottom[1].diff_flat[...] = 0


ADD = 1  # MergeCropParameter.MergeOp


@layer_types.register("MergeCrop")
class MergeCrop(Layer):
    """Bottom 0 and the middle of bottom 1, of the same spatial shape: stacked along the channels, or added.

    ``forward`` selects the bottoms whose values count (default: both), ``backward`` those that get a gradient (default:
    bottom 0); the others' are 0. The fork computes on GPUs only, and mixes channels up if bottom 1 has more of them.

    Bottoms: (N, C, spatial...), (N, C', spatial'...), no axis of the second shorter. Top: (N, C + C', spatial...), or
    (N, C, spatial...) where they are added.
    """

    n_bottoms = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.mergecrop_param
        if max(len(p.forward), len(p.backward)) > 2:
            raise LayerError(f"has 2 bottoms, got {len(p.forward)} times forward and {len(p.backward)} times backward")
        self._adds = p.operation == ADD
        self._gives = _completed(p.forward, (True, True))
        self._learns = _completed(p.backward, (True, False))

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        a, b = (blob.shape for blob in bottom)
        if len(a) < 2 or len(a) != len(b) or a[0] != b[0] or any(n > m for n, m in zip(a[2:], b[2:], strict=True)):
            raise LayerError(f"wants bottoms (N, C, ...), the second one no shorter along any axis, got {a} and {b}")
        if self._adds and a[1] != b[1]:
            raise LayerError(f"adds bottoms of as many channels, got {a} and {b}")
        middle = tuple(slice((m - n) // 2, (m - n) // 2 + n) for n, m in zip(a[2:], b[2:], strict=True))
        both = slice(None)
        self._windows = (both, both), (both, both, *middle)
        self._parts = ((both, both),) * 2 if self._adds else ((both, slice(a[1])), (both, slice(a[1], None)))
        top[0].reshape(a if self._adds else (a[0], a[1] + b[1], *a[2:]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._adds or not all(self._gives):
            top[0].data_flat[...] = 0
        for blob, window, part, gives in zip(bottom, self._windows, self._parts, self._gives, strict=True):
            if gives and self._adds:
                top[0].data[part] += blob.data[window]
            elif gives:
                top[0].data[part] = blob.data[window]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradients: the top's part inside the window, 0 elsewhere."""
        for i, (blob, wanted) in enumerate(zip(bottom, propagate_down, strict=True)):
            if wanted:
                blob.diff_flat[...] = 0
                if self._learns[i]:
                    blob.diff[self._windows[i]] = top[0].diff[self._parts[i]]


def _completed(given: Sequence[bool], defaults: tuple[bool, bool]) -> list[bool]:
    return [default if one is None else one for one, default in zip_longest(given, defaults)]
