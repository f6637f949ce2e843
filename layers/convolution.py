"""Convolution and deconvolution, in any number of spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob, claim_together
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.fused_relu import FusesRelu
from scaffe.layers.base.labels import check_axis
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.layout import channels_last, lies_channels_last, put_channels_last
from scaffe.layers.base.windows import conv_window
from scaffe.layers.kernels.specs import ConvSpec


class _Windowed(FusesRelu):
    """What both share: parameters, several bottoms with one set of weights, a fused ReLU."""

    recordable = True
    n_bottoms = (1, None)
    n_tops = (1, None)
    equal_counts = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read ConvolutionParameter; declare weights and bias. Raises LayerError."""
        p = self.param.convolution_param
        if p.num_output < 1:
            raise LayerError("needs a num_output above 0")
        self._axis = check_axis(bottom[0], p.axis)
        self._window = conv_window(p, bottom[0].ndim - self._axis - 1)
        spec = self._spec(self._folded(bottom[0].shape))
        self.add_blob(spec.weight_shape, p.weight_filler)
        if p.bias_term:
            self.add_blob((p.num_output,), p.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Tops (..., num_output, spatial...). Raises LayerError for bottoms unlike the first, or of other channels."""
        for blob in bottom[1:]:
            if blob.shape != bottom[0].shape:
                raise LayerError(f"all bottoms must have one shape, got {bottom[0].shape} and {blob.shape}")
        if bottom[0].ndim != self._axis + 1 + len(self._window[0]):
            raise LayerError(f"the number of axes may not change, got a bottom of shape {bottom[0].shape}")
        spec = self._spec(self._folded(bottom[0].shape))
        if spec.weight_shape != self.blobs[0].shape:
            raise LayerError(f"the bottom {bottom[0].shape} does not fit the weights {self.blobs[0].shape}")
        for blob in top:
            blob.reshape((*bottom[0].shape[: self._axis], *self._top_shape(spec)[1:]))
        self._plan = self._make_plan(spec)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        """Top by top, each with a ReLU of that slope where one is given."""
        w, b = self._weights()
        for x, y in zip(bottom, top, strict=True):
            out = y.data_flat if lies_channels_last(y, self._axis) else np.empty_like(y.data_flat)
            self._plan.forward(channels_last(x.data, self._axis), w, b, out, relu_slope)
            put_channels_last(out, y, y.data, self._axis)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Gradients of the weights and the bias add up over the tops."""
        w, _ = self._weights()
        for x, y, wanted in zip(bottom, top, propagate_down, strict=True):
            if any(self.param_propagate_down):
                self._backward_weights(x, y)
            if wanted:
                out = x.diff_flat if lies_channels_last(x, self._axis) else np.empty_like(x.diff_flat)
                self._plan.backward_data(channels_last(y.diff, self._axis), w, out)
                put_channels_last(out, x, x.diff, self._axis)

    def _backward_weights(self, x: Blob, y: Blob) -> None:
        gy, learns = channels_last(y.diff, self._axis), self.param_propagate_down
        if not learns[0]:
            self.blobs[1].diff[...] += gy.reshape(-1, self.blobs[1].n_elems).sum(0)
            return
        (gw, *gb), fresh = claim_together([blob for blob, wanted in zip(self.blobs, learns, strict=True) if wanted])
        self._plan.backward_weights(channels_last(x.data, self._axis), gy, gw.reshape(self.blobs[0].shape),
                                    gb[0] if gb else None, fresh)

    def _weights(self) -> tuple[np.ndarray, np.ndarray | None]:
        return self.blobs[0].data, self.blobs[1].data if len(self.blobs) > 1 else None

    def _folded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A bottom's shape with all axes ahead of the channels as one."""
        return (prod(shape[: self._axis]), *shape[self._axis :])

    # -- what differs --------------------------------------------------------------------------------------
    def _spec(self, shape: tuple[int, ...]) -> ConvSpec:
        raise NotImplementedError

    def _make_plan(self, spec: ConvSpec) -> Any:
        raise NotImplementedError

    def _top_shape(self, spec: ConvSpec) -> tuple[int, ...]:
        raise NotImplementedError


@layer_types.register("Convolution")
class Convolution(_Windowed):
    """y = x * w + b: (N, C, spatial...) to (N, num_output, spatial'...), weights (num_output, C / group, kernel...).

    ``axis`` says where the channels are; all axes ahead of it count as images.

    Each output axis has (in + 2 pad - (dilation (kernel - 1) + 1)) / stride + 1 elements, rounded down (Caffe 1.0).

    Raises:
        LayerError: no num_output, a window that does not fit, groups that do not divide the channels.
    """

    def _spec(self, shape: tuple[int, ...]) -> ConvSpec:
        p = self.param.convolution_param
        spec = ConvSpec(shape, p.num_output, *self._window, p.group, p.bias_term, self.context.dtype)
        spec.check()
        return spec

    def _make_plan(self, spec: ConvSpec) -> Any:
        return self.context.kernels.convolution(spec)

    def _top_shape(self, spec: ConvSpec) -> tuple[int, ...]:
        return spec.out_shape


@layer_types.register("Deconvolution")
class Deconvolution(_Windowed):
    """The transposed convolution: each output axis has stride (in - 1) + dilation (kernel - 1) + 1 - 2 pad elements.

    Weights are (C, num_output / group, kernel...), as Caffe 1.0 has them.

    Raises:
        LayerError: as Convolution.
    """

    def _spec(self, shape: tuple[int, ...]) -> ConvSpec:
        """The convolution that leads back from top to bottom."""
        p = self.param.convolution_param
        kernel, stride, pad, dilation = self._window
        out = tuple(s * (n - 1) + d * (k - 1) + 1 - 2 * q
                    for n, k, s, q, d in zip(shape[2:], kernel, stride, pad, dilation, strict=True))
        if min(out, default=1) < 1:
            raise LayerError(f"pad {pad} leaves nothing of the top of a bottom {shape}")
        spec = ConvSpec((shape[0], p.num_output, *out), shape[1], kernel, stride, pad, dilation, p.group, p.bias_term,
                        self.context.dtype)
        spec.check()
        return spec

    def _make_plan(self, spec: ConvSpec) -> Any:
        return self.context.kernels.deconvolution(replace(spec, bias=False))

    def _top_shape(self, spec: ConvSpec) -> tuple[int, ...]:
        return spec.in_shape
