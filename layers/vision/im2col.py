"""Im2col: the windows that a convolution reads, laid out as channels (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.kernel_geometry import conv_geometry
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Im2col")
class Im2col(Layer):
    """Copies each convolution window's elements into the channels of the top, at that window's output position.

    For windows of K elements, channel c K + k of the top holds element k of each window in the bottom's channel c.

    Bottom: (..., C, spatial...), with C at ``axis``. Top: (..., C K, spatial'...), with the output positions of a
    convolution of the same convolution_param.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, shape = self.param.convolution_param, bottom[0].shape
        self.axis = check_axis(bottom[0], p.axis)
        n = len(shape) - self.axis - 1
        if n < 1:
            raise LayerError(f"wants spatial axes behind channel axis {self.axis}, got shape {shape}")
        self.kernel, self.stride, self.pad, self.dilation = conv_geometry(p, n)
        extents = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        self.out = tuple((size + 2 * p - e) // s + 1
                         for size, p, e, s in zip(shape[self.axis + 1 :], self.pad, extents, self.stride, strict=True))
        if min(self.out) < 1:
            raise LayerError(f"a window of {tuple(extents)} does not fit {shape[self.axis + 1 :]} padded by {self.pad}")
        top[0].reshape((*shape[: self.axis], shape[self.axis] * prod(self.kernel), *self.out))
        padded = prod(n + a + b for n, (a, b) in zip(shape, self._margins(bottom[0]), strict=True))
        self.temporaries = padded / max(bottom[0].n_elems, top[0].n_elems, 1)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        padded = np.pad(bottom[0].data, self._margins(bottom[0]))
        for place, window in self._windows():
            np.copyto(top[0].data[place], padded[window])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the bottom's gradient: for each element, the sum over the windows that contain it (col2im)."""
        if not propagate_down[0]:
            return
        margins = self._margins(bottom[0])
        shape = [n + before + after for n, (before, after) in zip(bottom[0].shape, margins, strict=True)]
        padded = np.zeros_like(bottom[0].data, shape=shape)
        for place, window in self._windows():
            padded[window] += top[0].diff[place]
        inside = tuple(slice(a, a + n) for n, (a, _) in zip(bottom[0].shape, margins, strict=True))
        bottom[0].diff[...] = padded[inside]

    def _margins(self, bottom: Blob) -> list[tuple[int, int]]:
        return [(0, 0)] * (self.axis + 1) + [(p, p) for p in self.pad]

    def _windows(self) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
        """Per element of the window: where it goes in the top, and where it comes from in the padded bottom."""
        ahead, n_window = (slice(None),) * self.axis, prod(self.kernel)
        pairs = []
        for k, offsets in enumerate(product(*map(range, self.kernel))):
            starts = [o * d for o, d in zip(offsets, self.dilation, strict=True)]
            steps = [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, self.out, self.stride, strict=True)]
            pairs.append(((*ahead, slice(k, None, n_window)), (*ahead, slice(None), *steps)))
        return pairs
