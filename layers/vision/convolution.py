"""Convolution, depthwise too, and deconvolution over any number of spatial axes (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import (
    channels_last,
    check_axis,
    lies_channels_last,
    put_channels_last,
    weights_for_backward,
    weights_for_forward,
)
from scaffe.layers.base.bases import Weighted
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.kernel_geometry import conv_geometry
from scaffe.layers.base.layer import layer_types
from scaffe.layers.kernels.plans import InferencePlan, SummingPlan
from scaffe.layers.kernels.specs import ConvPasses, ConvSpec, Thinned


class _Windowed(Weighted):
    """What both layers share: the parameters, one set of weights for all bottoms, a fused ReLU. ``spec``: the
    convolution's geometry, that of the one from top to bottom for a deconvolution."""

    spec: ConvSpec
    recordable = repeatable = divides = True
    reads_tops = False
    n_bottoms: ClassVar[tuple[int, int | None]] = (1, None)
    n_tops: ClassVar[tuple[int, int | None]] = (1, None)
    equal_counts = True
    _addends: Sequence[Blob] = ()
    summed_signs: Blob | None = None
    _thinned: tuple[Blob, Thinned] | None = None  # another addend
    _kept: Thinned | None = None  # what counts in gradients of bottoms

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self._options
        if p.num_output < 1:
            raise LayerError("needs a num_output above 0")
        self._axis = check_axis(bottom[0], p.axis)
        self.by_image = self._axis > 0
        self._window = conv_geometry(p, bottom[0].ndim - self._axis - 1)
        spec = self._spec(self._folded(bottom[0].shape))
        weights = self.add_blob(spec.weight_shape, p.weight_filler)
        weights.kernel_order = weights.shape[1], weights.count(2)
        if p.bias_term:
            self.add_blob((p.num_output,), p.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops: (..., num_output, spatial'...)."""
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
        self.spec, self._plan = spec, self._make_plan(spec)
        self._kept = spec.thinned if self._kept else None
        self._plan_by_data = self._make_plan(spec.on_thinned) if self._kept else self._plan

    def passes(self, propagate_down: Sequence[bool]) -> ConvPasses:
        """Which passes of the kernels' plan of ``spec`` run, if backward computes these bottoms' gradients; empty: it
        does not run."""
        return ConvPasses(True, len(self.blobs) > 1, self._fused_slope, any(propagate_down),
                          bool(propagate_down) and self.param_propagate_down[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        w, b = weights_for_forward(self.blobs[0]), self._bias()
        for x, y in zip(bottom, top, strict=True):
            out = y.data_flat if lies_channels_last(y, self._axis) else np.empty_like(y.data_flat)
            self._plan.forward(channels_last(x.data, self._axis), w, b, out, relu_slope)
            put_channels_last(out, y, y.data, self._axis)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        self.backward_bottoms(top, propagate_down, bottom)
        if any(propagate_down):
            self.bottoms_written()
        self.backward_params(top, bottom)

    def backward_bottoms(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        w = weights_for_backward(self.blobs[0])
        for x, y, wanted in zip(bottom, top, propagate_down, strict=True):
            gy = channels_last(y.diff, self._axis)
            if wanted and (self._addends or self.summed_signs is not None):
                self._plan_by_data.backward_data_sum(gy, w, self._gradient(x), [*map(self._gradient, self._addends)],
                                                     self._read_signs())
            elif wanted:
                out = self._gradient(x) if lies_channels_last(x, self._axis) else np.empty_like(x.diff_flat)
                self._plan_by_data.backward_data(gy, w, out)
                put_channels_last(out, x, x.diff, self._axis)
            if wanted and self._thinned:
                blob, kept = self._thinned[0], replace(self._thinned[1], shape=x.shape)
                self._plan.add_thinned(x.diff_flat, blob.diff_flat[:kept.n_kept], kept, self._read_signs())

    def backward_params(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        for x, y in zip(bottom, top, strict=True) if any(self.param_propagate_down) else ():
            self._backward_weights(channels_last(x.data, self._axis), channels_last(y.diff, self._axis))

    def include_sum(self, bottom: Blob, addends: Sequence[Blob], signs: Blob | None) -> bool:
        """From now on let the gradient of the only bottom be the sum of its own and those of ``addends``, 0 where the
        data of ``signs``, if given, are not above 0. Returns whether it does."""
        if not isinstance(self._plan, SummingPlan) or not lies_channels_last(bottom, self._axis):
            return False
        self._addends, self.summed_signs = addends, signs
        return True

    def adds(self, blob: Blob) -> bool:
        """Whether a blob's gradient is one of the sum's."""
        return any(other is blob for other in self._addends)

    def add_thinned(self, addend: Blob, thinned: Thinned) -> bool:
        """From now on take one of the addends as an array of the places that count. Returns whether it does."""
        if self._thinned is not None or self.spec.thinned is not None:
            return False
        self._addends, self._thinned = [blob for blob in self._addends if blob is not addend], (addend, thinned)
        return True

    def thin_gradient(self) -> None:
        """From now on let only the places that windows read count in gradients of bottoms, and in ``addends``: they lie
        at the front of the diffs."""
        self._kept, self._plan_by_data = self.spec.thinned, self._make_plan(self.spec.on_thinned)

    def prepare_sum(self) -> None:
        """Build what computes the sum of gradients, if there is one, which may be chosen by its time."""
        if self._addends or self.summed_signs is not None:
            self._plan_by_data.prepare_sum(len(self._addends), self.summed_signs is not None)

    def takes_sign_bits(self) -> bool:
        """Whether the sum's backward of ReLU reads sign bits where ``summed_signs`` has them."""
        blob = self.summed_signs
        if blob is None or (self._kept is not None and blob.shape[self._axis] % (8 * blob.dtype.itemsize)):
            return False
        return bool(self._plan_by_data.takes_sign_bits(len(self._addends)))

    def _gradient(self, blob: Blob) -> Any:
        """The part of a bottom's diff that is written."""
        return blob.diff_flat if self._kept is None else blob.diff_flat[:self._kept.n_kept]

    def _read_signs(self) -> Any:
        blob = self.summed_signs
        if blob is None:
            return None
        signs = blob.data_flat if blob.sign_bits is None else blob.sign_bits
        return signs if self._kept is None else self._plan.keep_places(signs, self._kept)

    def _folded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A bottom's shape with all axes before the channel axis merged into one."""
        return (prod(shape[: self._axis]), *shape[self._axis :])

    @property
    def _options(self) -> Any:
        """The ConvolutionParameter message."""
        return self.param.convolution_param

    # -- what differs --------------------------------------------------------------------------------------
    def _spec(self, shape: tuple[int, ...]) -> ConvSpec:
        raise NotImplementedError

    def _make_plan(self, spec: ConvSpec) -> Any:
        raise NotImplementedError

    def _top_shape(self, spec: ConvSpec) -> tuple[int, ...]:
        raise NotImplementedError


@layer_types.register("Convolution")
class Convolution(_Windowed):
    """Convolution (a cross-correlation, as in Caffe) of each bottom with learned weights, plus a bias.

    Bottoms: (N, C, spatial...), all of one shape. Tops: (N, num_output, spatial'...), one for each bottom.
    Blobs: weights (num_output, C / group, kernel...); bias (num_output,) unless bias_term is false.

    ``axis`` is the channel axis, 1 by default; all axes before it together form the batch N.

    An output axis has floor((in + 2 pad - (dilation (kernel - 1) + 1)) / stride) + 1 elements (Caffe 1.0).

    ``engine: CAFFE`` asks for the sums as the definition has them, where a CPU would take Winograd's filtering.

    Raises LayerError if num_output is missing, the window does not fit, or ``group`` does not divide the channels.
    """

    has_half_kernels = True

    def _spec(self, shape: tuple[int, ...]) -> ConvSpec:
        p = self._options
        spec = ConvSpec(shape, p.num_output, *self._window, p.group, p.bias_term, self.context.dtype,
                        p.engine == p.CAFFE)
        spec.check()
        return spec

    def _make_plan(self, spec: ConvSpec) -> Any:
        return self.context.kernels.convolution(spec)

    def inference_plan(self, bottom: Blob, top: Blob, relu_slope: float | None, adds: bool) -> InferencePlan | None:
        """See Layer: with a bias, which the shifts are folded into."""
        if not all(lies_channels_last(blob, self._axis) for blob in (bottom, top)):
            return None
        spec = replace(self._spec(self._folded(bottom.shape)), bias=True)
        return self.context.kernels.inference_convolution(spec, relu_slope, adds)

    def _top_shape(self, spec: ConvSpec) -> tuple[int, ...]:
        return spec.out_shape


@layer_types.register("Deconvolution")
class Deconvolution(_Windowed):
    """Transposed convolution: its forward is the backward of a convolution with respect to the data (Caffe 1.0).

    Bottoms: (N, C, spatial...), all of one shape. Tops: (N, num_output, spatial'...), one for each bottom.
    Blobs: weights (C, num_output / group, kernel...); bias (num_output,) unless bias_term is false.

    An output axis has stride (in - 1) + dilation (kernel - 1) + 1 - 2 pad elements.

    Raises LayerError if num_output is missing, nothing of the top is left, or ``group`` does not divide the channels.
    """

    def _spec(self, shape: tuple[int, ...]) -> ConvSpec:
        """The convolution that maps a top's shape to the bottom's."""
        p = self._options
        kernel, stride, pad, dilation = self._window
        out = tuple(s * (n - 1) + d * (k - 1) + 1 - 2 * q
                    for n, k, s, q, d in zip(shape[2:], kernel, stride, pad, dilation, strict=True))
        if min(out, default=1) < 1:
            raise LayerError(f"pad {pad} leaves nothing of the top of a bottom {shape}")
        spec = ConvSpec((shape[0], p.num_output, *out), shape[1], kernel, stride, pad, dilation, p.group, p.bias_term,
                        self.context.dtype, p.engine == p.CAFFE)
        spec.check()
        return spec

    def _make_plan(self, spec: ConvSpec) -> Any:
        return self.context.kernels.deconvolution(replace(spec, bias=False))

    def passes(self, propagate_down: Sequence[bool]) -> ConvPasses:
        """See ``_Windowed``: those of the convolution from top to bottom."""
        own = super().passes(propagate_down)
        return ConvPasses(own.by_data, by_data=True, by_weights=own.by_weights)

    def _top_shape(self, spec: ConvSpec) -> tuple[int, ...]:
        return spec.in_shape


@layer_types.register("DepthwiseConvolution", "ConvolutionDepthwise")
class DepthwiseConvolution(Convolution):
    """A convolution with one group for each channel; ``group`` in the prototxt is ignored.

    num_output is a multiple of the number of channels; if not given, it is that number.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        n_channels = bottom[0].shape[1] if bottom[0].ndim > 1 else 0
        message = type(self.param)()
        message.CopyFrom(self.param)
        p = message.convolution_param
        if n_channels < 1 or p.num_output % n_channels:
            raise LayerError(f"num_output {p.num_output} is not a multiple of the channels of {bottom[0].shape}")
        p.group, p.num_output = n_channels, p.num_output or n_channels
        self.param = message
        super().setup(bottom, top)
