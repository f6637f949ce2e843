"""Scale and Bias: multiply by factors and add offsets, learned or given, broadcast over some axes (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import Rows, covered_shape, spread_shape, summed_axes
from scaffe.layers.base.bases import FusesRelu
from scaffe.layers.base.blob import Blob, claim_together
from scaffe.layers.base.layer import layer_types
from scaffe.layers.kernels.specs import Fused, FusedDiffs


class Affine(FusesRelu):
    """The base of Scale and Bias: y = x · scale + bias, in place or not; each is a learned blob, the second bottom, or
    absent."""

    recordable = repeatable = True
    n_bottoms = (1, 2)
    _axis: int  # set by setup: the first axis that scale and bias cover
    _scale: Blob | None = None
    _bias: Blob | None = None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0]
        self._bind(bottom)
        factor = self._scale or self._bias
        if factor is None:
            raise LayerError("has neither scale nor bias")
        if self._scale is not None and self._bias is not None and self._scale.shape != self._bias.shape:
            raise LayerError(f"has a bias of shape {self._bias.shape}, and the scale has shape {self._scale.shape} now")
        self.by_image = self._axis > 0 and len(bottom) == 1
        self._spread = spread_shape(x, factor.shape, self._axis)
        self._summed = summed_axes(self._spread, x.shape)
        if top[0] is not x:
            top[0].reshape(x.shape)
        keeps = top[0] is x and self._scale is not None and not self.forward_only
        self._kept = self.context.blob(x.shape, x.channels_last) if keeps else None
        self._per_channel = x.ndim > 1 and self._spread == (1, x.shape[1], *(1,) * (x.ndim - 2))
        self._rows = Rows(x, 1) if self._per_channel and Rows(x, 1).is_view else None
        self.temporaries = int(self._rows is None)
        ones = self.context.xp.ones(factor.n_elems, factor.dtype)
        self._ones, self._zeros = ones, 0 * ones

    def _bind(self, bottom: Sequence[Blob]) -> None:
        """Set ``_scale`` and ``_bias`` to the blobs that hold them."""
        raise NotImplementedError

    @property
    def is_fusable(self) -> bool:
        """Whether batch norm can fuse this layer: scale and bias are learned, with one number per channel."""
        return self._per_channel and all(blob is None or blob in self.blobs for blob in (self._scale, self._bias))

    def per_channel(self) -> tuple[Any, Any] | None:
        if not self.is_fusable or self._rows is None:
            return None
        fused = self.fused()
        return fused.scale, fused.bias

    def fused(self) -> Fused:
        """Scale and bias, for the layer that this one is fused with."""
        scale, bias = (None if blob is None else blob.data_flat for blob in (self._scale, self._bias))
        return Fused(scale, bias)

    def fused_diffs(self) -> FusedDiffs:
        """Where the layer that this one is fused with writes or adds the gradients of scale and bias."""
        wanted = [blob for blob, w in zip(self.blobs, self.param_propagate_down, strict=True) if w]
        diffs, overwrite = claim_together(wanted)
        found = {id(blob): diff for blob, diff in zip(wanted, diffs, strict=True)}
        return FusedDiffs(found.get(id(self._scale)), found.get(id(self._bias)), overwrite)

    @property
    def kept(self) -> Blob | None:
        """A copy of the input that backward needs after working in place, else None. A layer that this one is fused
        with writes it."""
        return self._kept

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        x, y = bottom[0], top[0]
        self._bind(bottom)
        if self._rows is not None:
            scale = self._ones if self._scale is None else self._scale.data_flat
            bias = self._zeros if self._bias is None else self._bias.data_flat
            kept = None if self._kept is None else self._rows.data(self._kept)
            self.context.kernels.scale_rows(self._rows.data(x), scale, bias, self._rows.data(y), kept, relu_slope)
            return
        self._spread_out(x, y)
        if relu_slope is not None:
            self.context.kernels.relu_forward(y.data_flat, y.data_flat, relu_slope)

    def _spread_out(self, x: Blob, y: Blob) -> None:
        """Write the top, for scale and bias that are not one number per channel."""
        if self._kept is not None:
            np.copyto(self._kept.data_flat, x.data_flat)
        if self._scale is not None:
            np.multiply(x.data, self._scale.data.reshape(self._spread), out=y.data)
        if self._bias is not None:
            np.add(x.data if self._scale is None else y.data, self._bias.data.reshape(self._spread), out=y.data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        wanted = {id(blob) for blob, w in zip(self.blobs, self.param_propagate_down, strict=True) if w}
        wanted |= {id(blob) for blob, w in zip(bottom[1:], propagate_down[1:], strict=True) if w}
        if wanted:
            self._differentiate_factors(self._kept or bottom[0], top[0], wanted, bottom)
        if not propagate_down[0]:
            return
        gy, gx = top[0], bottom[0]
        if self._scale is not None and self._rows is not None:
            self.context.kernels.scale_rows(self._rows.diff(gy), self._scale.data_flat, self._zeros,
                                            self._rows.diff(gx))
        elif self._scale is not None:
            np.multiply(gy.diff, self._scale.data.reshape(self._spread), out=gx.diff)
        elif gy is not gx:
            np.copyto(gx.diff_flat, gy.diff_flat)

    def _differentiate_factors(self, x: Blob, y: Blob, wanted: set[int], bottom: Sequence[Blob]) -> None:
        if self._rows is not None:
            products, sums = self.context.kernels.scale_sums(self._rows.data(x), self._rows.diff(y))
        else:
            products, sums = (y.diff * x.data).sum(self._summed), y.diff.sum(self._summed)
        for blob, gradient in ((self._scale, products), (self._bias, sums)):
            if blob is None or id(blob) not in wanted:
                continue
            gradient = self.context.xp.asarray(gradient).reshape(blob.shape)
            if len(bottom) > 1 and blob is bottom[1]:
                blob.diff[...] = gradient
            else:
                blob.diff[...] += gradient.astype(blob.dtype)


@layer_types.register("Scale")
class Scale(Affine):
    """y = x · scale, plus a bias if bias_term is set (Caffe 1.0).

    The scale has the lengths of ``num_axes`` axes of x, from ``axis`` on, and is broadcast over the others. It is the
    second bottom if there is one, else a learned blob, 1 at first unless there is a filler. The bias is a learned blob
    of the scale's shape.
    """

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        return _is_per_channel(param.scale_param, bottom)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.scale_param
        self._axis = p.axis
        shape = bottom[1].shape if len(bottom) > 1 else covered_shape(bottom[0], p.axis, p.num_axes)
        if len(bottom) == 1:
            blob = self.add_blob(shape, p.filler if p.HasField("filler") else None)
            if not p.HasField("filler"):
                blob.data[...] = 1
        if p.bias_term:
            self.add_blob(shape, p.bias_filler)

    def _bind(self, bottom: Sequence[Blob]) -> None:
        self._scale = bottom[1] if len(bottom) > 1 else self.blobs[0]
        self._bias = self.blobs[-1] if self.param.scale_param.bias_term else None


@layer_types.register("Bias")
class Bias(Affine):
    """y = x + bias (Caffe 1.0).

    The bias has the lengths of ``num_axes`` axes of x, from ``axis`` on, and is broadcast over the others. It is the
    second bottom if there is one, else a learned blob.
    """

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        return _is_per_channel(param.bias_param, bottom)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.bias_param
        self._axis = p.axis
        if len(bottom) == 1:
            self.add_blob(covered_shape(bottom[0], p.axis, p.num_axes), p.filler)

    def _bind(self, bottom: Sequence[Blob]) -> None:
        self._bias = bottom[1] if len(bottom) > 1 else self.blobs[0]


def _is_per_channel(p: Any, bottom: Sequence[Blob]) -> bool:
    """Whether there is one learned number for each channel, and the channels of a pixel or row lie together."""
    return len(bottom) == 1 and (p.axis, p.num_axes) == (1, 1) and (bottom[0].ndim == 2 or bottom[0].ndim >= 4)
