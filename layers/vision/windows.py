"""Im2col, the windows that a convolution reads, laid out as channels (Caffe 1.0); LocalConvolution, a convolution whose
weights are not shared between places (ours; DistBelief, Dean et al. 2012)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.fillers import fill
from scaffe.layers.base.kernel_geometry import conv_geometry
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.kernels.specs import ConvSpec


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


@layer_types.register("LocalConvolution")
class LocalConvolution(Layer):
    """y[n, o, i, j] = sum over a window of x, w[i, j, o] · window(x, n, i, j), plus b[i, j, o].

    The windows are those of a convolution with the same options: kernel, stride, pad and dilation.

    Bottom: (N, C, H, W). Top: (N, num_output, H', W').
    Blobs: weights (H', W', num_output, C, kernel height, kernel width), each place filled like a convolution's; bias
    (H', W', num_output) unless bias_term is false.

    Raises LayerError if the bottom does not have four axes or changed its shape, the window does not fit, or num_output
    is missing.
    """

    recordable = repeatable = True
    reads_tops = False
    temporaries = 2

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, spec = self.param.local_convolution_param, self._spec(bottom[0])
        weights = self.add_blob((*spec.out_spatial, *spec.weight_shape), None)
        if self.context.fills:
            values = np.zeros(weights.shape, np.promote_types(weights.dtype, np.float32))
            fill_places(values, p.weight_filler, self.context.rng)
            self.put(weights, values)
        if p.bias_term:
            self.add_blob((*spec.out_spatial, p.num_output), p.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        spec = self._spec(bottom[0])
        if (*spec.out_spatial, *spec.weight_shape) != self.blobs[0].shape:
            raise LayerError(f"the bottom {bottom[0].shape} does not fit the weights {self.blobs[0].shape}")
        self._window, self._out = spec, spec.out_spatial
        top[0].reshape(spec.out_shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = self._padded(bottom[0].data), top[0].data
        for row in range(self._out[0]):
            sums = np.matmul(self._columns(x, row), self._weights(row).transpose(0, 2, 1))
            if len(self.blobs) > 1:
                sums += self.blobs[1].data[row][:, None]
            y[:, :, row] = sums.transpose(1, 2, 0)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            self._backward_data(top[0].diff, bottom[0])
            self.bottoms_written()
        if any(self.param_propagate_down):
            self._backward_weights(top[0].diff, bottom[0])

    def _backward_data(self, gradient: np.ndarray, bottom: Blob) -> None:
        (pad_h, pad_w), (height, width) = self._window.pad, bottom.shape[2:]
        gx = self.context.xp.zeros((*bottom.shape[:2], height + 2 * pad_h, width + 2 * pad_w), bottom.dtype)
        for row in range(self._out[0]):
            gy = gradient[:, :, row].transpose(2, 0, 1)  # (W', N, num_output)
            self._add_columns(np.matmul(gy, self._weights(row)), gx, row)
        bottom.diff[...] = gx[:, :, pad_h:pad_h + height, pad_w:pad_w + width]

    def _backward_weights(self, gradient: np.ndarray, bottom: Blob) -> None:
        x, learns = self._padded(bottom.data), self.param_propagate_down
        for row in range(self._out[0]):
            gy = gradient[:, :, row].transpose(2, 0, 1)  # (W', N, num_output)
            if learns[0]:
                gw = np.matmul(gy.transpose(0, 2, 1), self._columns(x, row))
                self.blobs[0].diff[row] += gw.reshape(self.blobs[0].shape[1:])
            if len(self.blobs) > 1 and learns[1]:
                self.blobs[1].diff[row] += gy.sum(1)

    def _spec(self, bottom: Blob) -> ConvSpec:
        p = self.param.local_convolution_param
        if bottom.ndim != 4:
            raise LayerError(f"takes images of four axes (N, C, H, W), got shape {bottom.shape}")
        if p.num_output < 1:
            raise LayerError("needs a num_output above 0")
        spec = ConvSpec(bottom.shape, p.num_output, *conv_geometry(p, 2), 1, p.bias_term, self.context.dtype)
        spec.check()
        return spec

    def _padded(self, x: np.ndarray) -> np.ndarray:
        """The bottom with zeros around."""
        return np.pad(x, [(0, 0), (0, 0), *((pad, pad) for pad in self._window.pad)])

    def _weights(self, row: int) -> np.ndarray:
        """Weights of a row of places: (W', num_output, elements of a window)."""
        weights: np.ndarray = self.blobs[0].data[row]
        return weights.reshape(*weights.shape[:2], prod(weights.shape[2:]))

    def _columns(self, x: np.ndarray, row: int) -> np.ndarray:
        """The windows of a row of places: (W', N, elements of a window)."""
        n_images, n_channels = x.shape[:2]
        columns: np.ndarray = np.empty_like(x, shape=(self._out[1], n_images, n_channels, *self._window.kernel))
        for (i, j), place in self._places(row):
            columns[:, :, :, i, j] = x[place].transpose(2, 0, 1)
        return columns.reshape(self._out[1], n_images, n_channels * prod(self._window.kernel))

    def _add_columns(self, columns: np.ndarray, gx: np.ndarray, row: int) -> None:
        """Add gradients of windows, as ``_columns`` lays them out, to the padded bottom's."""
        columns = columns.reshape(self._out[1], *gx.shape[:2], *self._window.kernel)
        for (i, j), place in self._places(row):
            gx[place] += columns[:, :, :, i, j].transpose(1, 2, 0)

    def _places(self, row: int) -> list[tuple[tuple[int, int], Any]]:
        """Yield each element of a window, and its position in the padded bottom for a row of windows."""
        (high, wide), (down, along), (dil_h, dil_w) = self._window.kernel, self._window.stride, self._window.dilation
        last = (self._out[1] - 1) * along + 1
        return [((i, j), (slice(None), slice(None), row * down + i * dil_h,
                          slice(j * dil_w, j * dil_w + last, along))) for i, j in product(range(high), range(wide))]


def fill_places(weights: np.ndarray, filler: Any, rng: Any) -> None:
    """Fill weights (H', W', num_output, C, kernel...) place by place: fan-in and fan-out are a convolution's."""
    for place in np.ndindex(*weights.shape[:2]):
        fill(weights[place], filler, rng)
