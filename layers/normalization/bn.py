"""BN: batch normalisation with its own scale and shift, as SegNet's and PSPNet's forks have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import Rows
from scaffe.layers.base.blob import Blob, claim_together
from scaffe.layers.base.layer import TEST, Layer, layer_types
from scaffe.layers.kernels.specs import Fused, FusedDiffs, NormSpec

SEGNET_EPS = 1e-9
SEGNET_FIELDS = ("scale_filler", "shift_filler", "bn_mode")


@layer_types.register("BN")
class BN(Layer):
    """y = (x - mean) / sqrt(variance + eps) · scale + shift, for each channel.

    Two forks have a layer of this name; the options tell them apart.

    With scale_filler, shift_filler or bn_mode it is SegNet's (alexgkendall/caffe-segnet, bn_layer.cpp): LEARN takes
    mean and variance of the batch, in testing too, with eps 1e-9; INFERENCE is y = x · scale + shift. Two more tops, if
    there are any, show the batch's mean and variance, (1, C, 1, 1). Blobs: scale and shift, (1, C, 1, 1).

    Else it is PSPNet's (hszhao/PSPNet, bn_layer.cpp): the batch's statistics in training, running averages in testing
    and if ``frozen``, which also stops scale and shift from learning. Each training forward makes the averages
    momentum · average + (1 - momentum) · batch. Blobs: scale, shift, average mean and average variance, (1, C, 1, 1).

    Bottom: (N, C, ...). Top: the same shape, in place or not.
    """

    n_tops = (1, 3)
    keeps_bottom = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the blobs. Raises LayerError for a bottom without channels, or tops or options of the other fork."""
        p = self.param.bn_param
        self._is_segnet = any(p.HasField(name) for name in SEGNET_FIELDS)
        others = ("slope_filler", "bias_filler", "momentum", "eps", "frozen") if self._is_segnet else ()
        mixed = [name for name in others if p.HasField(name)]
        if mixed:
            raise LayerError(f"bn_param has options of SegNet's BN and, with {mixed[0]}, of PSPNet's; give one's only")
        if len(top) > 1 and not self._is_segnet:
            raise LayerError(f"PSPNet's BN has 1 top, got {len(top)}; more are SegNet's, with scale_filler or bn_mode")
        if bottom[0].ndim < 2:
            raise LayerError(f"takes (N, C, ...), got shape {bottom[0].shape}")
        self._shape = (1, bottom[0].shape[1], 1, 1)
        fillers = (p.scale_filler, p.shift_filler) if self._is_segnet else (p.slope_filler, p.bias_filler)
        for filler in fillers:
            self.add_blob(self._shape, filler)
        if not self._is_segnet:
            self._add_averages(p.frozen)
            self.writes_params = self._chosen_source() == "batch"

    def _add_averages(self, frozen: bool) -> None:
        for _ in range(2):
            self.add_blob(self._shape, None)
        self.blobs[3].data[...] = 1 if frozen else 0
        while len(self.param.param) < 4:
            self.param.param.add()
        for spec in self.param.param[0 if frozen else 2 : 4]:
            spec.lr_mult = spec.decay_mult = 0

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, p = bottom[0], self.param.bn_param
        if x.ndim < 2 or x.shape[1] != self._shape[1]:
            raise LayerError(f"has {self._shape[1]} channels, the bottom is {x.shape}")
        if top[0] is not x:
            top[0].reshape(x.shape)
        for blob in top[1:]:
            blob.reshape(self._shape)
        self._source = self._chosen_source()
        eps = 0.0 if self._source == "identity" else SEGNET_EPS if self._is_segnet else p.eps
        spec = NormSpec(x.shape, eps, 0.0, self.context.dtype)
        self._rows, self._correction = Rows(x, 1), spec.correction
        self._plan = self.context.kernels.batch_norm(spec)
        xp = self.context.xp
        self._mean, self._variance = (xp.zeros(spec.n_channels, self.context.param_dtype) for _ in range(2))
        self._one = xp.ones(1, self.context.param_dtype)
        keeps = top[0] is x and not self.forward_only
        self._kept = xp.empty((spec.n_rows, spec.n_channels), x.dtype) if keeps else None

    def _chosen_source(self) -> str:
        """Where mean and variance come from: the batch, the averages, or neither (identity)."""
        p = self.param.bn_param
        if self._is_segnet:
            return "identity" if p.bn_mode == p.INFERENCE else "batch"
        return "averages" if p.frozen or self.context.phase == TEST else "batch"

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = self._rows.data(bottom[0]), self._rows.data(top[0])
        if self._source == "batch":
            self._mean[...] = self._variance[...] = 0
            self._plan.forward_train(x, y, (self._mean, self._variance, self._one), self._fused(), self._kept)
            self._variance /= self._correction
            self._publish(top)
        else:
            self._plan.forward_fixed(x, y, self._fixed_statistics(), self._fused(), self._kept)
        self._rows.put_data(y, top[0])

    def _publish(self, top: Sequence[Blob]) -> None:
        """Write the batch's mean and variance to the tops that show them, or add them to the running averages."""
        found = (self._mean, self._variance)
        for blob, values in zip(top[1:], found, strict=False):
            blob.data[...] = values.reshape(self._shape)
        if not self._is_segnet:
            momentum = self.param.bn_param.momentum
            for blob, values in zip(self.blobs[2:], found, strict=True):
                blob.data_flat[...] = momentum * blob.data_flat + (1 - momentum) * values

    def _fixed_statistics(self) -> tuple[Any, Any, Any]:
        if self._source == "averages":
            return self.blobs[2].data_flat, self.blobs[3].data_flat, self._one
        self._mean[...], self._variance[...] = 0, 1
        return self._mean, self._variance, self._one

    def _fused(self) -> Fused:
        return Fused(self.blobs[0].data_flat, self.blobs[1].data_flat)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add the gradients of scale and shift, unless frozen; write the bottom's."""
        x = self._rows.data(bottom[0]) if self._kept is None else self._kept
        gx = self._rows.diff(bottom[0]) if propagate_down[0] else None
        diffs = FusedDiffs() if self.param.bn_param.frozen else self._wanted_diffs()
        self._plan.backward(x, self._rows.diff(top[0]), gx, self._fused(), diffs)
        if gx is not None:
            self._rows.put_diff(gx, bottom[0])

    def _wanted_diffs(self) -> FusedDiffs:
        wanted = [blob for blob, w in zip(self.blobs[:2], self.param_propagate_down, strict=False) if w]
        claimed, overwrite = claim_together(wanted)
        found: dict[int, np.ndarray] = {id(b): diff for b, diff in zip(wanted, claimed, strict=True)}
        scale, shift = (found.get(id(blob)) for blob in self.blobs[:2])
        return FusedDiffs(scale, shift, overwrite)
