"""Scale and Bias: learned or given factors and offsets along some axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob, claim_together
from scaffe.layers.base.broadcast import covered_shape, spread_shape, summed_axes
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.fused_relu import FusesRelu
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.rows import Rows
from scaffe.layers.kernels.norms import Fused, FusedDiffs


class Affine(FusesRelu):
    """y = x · scale + bias; each of the two learned, given as a second bottom, or absent. In place or not."""

    recordable = True
    n_bottoms = (1, 2)
    _axis: int  # set by setup: the first axis that scale and bias cover
    _scale: Blob | None = None
    _bias: Blob | None = None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Top as the bottom. Raises LayerError where scale or bias does not fit."""
        x = bottom[0]
        self._bind(bottom)
        factor = self._scale or self._bias
        if factor is None:
            raise LayerError("has neither scale nor bias")
        self._spread = spread_shape(x, factor.shape, self._axis)
        self._summed = summed_axes(self._spread, x.shape)
        if top[0] is not x:
            top[0].reshape(x.shape)
        keeps = top[0] is x and self._scale is not None and not self.forward_only
        self._kept = self.context.blob(x.shape, x.channels_last) if keeps else None
        self._per_channel = x.ndim > 1 and self._spread == (1, x.shape[1], *(1,) * (x.ndim - 2))
        self._rows = Rows(x, 1) if self._per_channel and Rows(x, 1).is_view else None
        ones = self.context.xp.ones(factor.n_elems, factor.dtype)
        self._ones, self._zeros = ones, 0 * ones

    def _bind(self, bottom: Sequence[Blob]) -> None:
        """Set ``_scale`` and ``_bias``."""
        raise NotImplementedError

    @property
    def is_fusable(self) -> bool:
        """Whether this is one learned scale, one bias or both a channel: what batch norm can fuse."""
        return self._per_channel and all(blob is None or blob in self.blobs for blob in (self._scale, self._bias))

    def fused(self) -> Fused:
        """Scale and bias, for the layer that this one is fused to."""
        scale, bias = (None if blob is None else blob.data_flat for blob in (self._scale, self._bias))
        return Fused(scale, bias)

    def fused_diffs(self) -> FusedDiffs:
        """Where the layer that this one is fused to leaves their gradients."""
        wanted = [blob for blob, w in zip(self.blobs, self.param_propagate_down, strict=True) if w]
        diffs, overwrite = claim_together(wanted)
        found = {id(blob): diff for blob, diff in zip(wanted, diffs, strict=True)}
        return FusedDiffs(found.get(id(self._scale)), found.get(id(self._bias)), overwrite)

    @property
    def kept(self) -> Blob | None:
        """Where the input is kept for backward in place; the layer that this one is fused to fills it."""
        return self._kept

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        """Write the top, with a ReLU of that slope where one is given."""
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
        """Write the top where the numbers are not one a channel."""
        if self._kept is not None:
            np.copyto(self._kept.data_flat, x.data_flat)
        if self._scale is not None:
            np.multiply(x.data, self._scale.data.reshape(self._spread), out=y.data)
        if self._bias is not None:
            np.add(x.data if self._scale is None else y.data, self._bias.data.reshape(self._spread), out=y.data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """FusedDiffs numbers' gradients add up; those of a second bottom are written."""
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
        products, sums = self._reduce(x, y)
        for blob, gradient in ((self._scale, products), (self._bias, sums)):
            if blob is None or id(blob) not in wanted:
                continue
            gradient = self.context.xp.asarray(gradient).reshape(blob.shape)
            if len(bottom) > 1 and blob is bottom[1]:
                blob.diff[...] = gradient
            else:
                blob.diff[...] += gradient.astype(blob.dtype)

    def _reduce(self, x: Blob, y: Blob) -> tuple[np.ndarray, np.ndarray]:
        """Sums of gy x and of gy over what the factors do not cover."""
        if self._rows is not None:
            return self.context.kernels.scale_sums(self._rows.data(x), self._rows.diff(y))
        gy = y.diff
        return (gy * x.data).sum(self._summed), gy.sum(self._summed)


@layer_types.register("Scale")
class Scale(Affine):
    """y = x · scale (+ bias): the scale is learned (1 unless filled) or the second bottom; it covers ``num_axes`` axes

    from ``axis`` on. bias_term adds a learned bias of the same shape (Caffe 1.0).
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare what is learned."""
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
    """y = x + bias: learned, or the second bottom; it covers ``num_axes`` axes from ``axis`` on (Caffe 1.0)."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare what is learned."""
        p = self.param.bias_param
        self._axis = p.axis
        if len(bottom) == 1:
            self.add_blob(covered_shape(bottom[0], p.axis, p.num_axes), p.filler)

    def _bind(self, bottom: Sequence[Blob]) -> None:
        self._bias = bottom[1] if len(bottom) > 1 else self.blobs[0]
