"""Batch normalisation (Ioffe and Szegedy 2015): Caffe's, after which a Scale layer applies scale and bias, and BN, with
its own, as SegNet's and PSPNet's forks have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.arithmetic.scale import Affine
from scaffe.layers.base.axes import Rows, check_n_axes
from scaffe.layers.base.blob import Blob, claim_together
from scaffe.layers.base.layer import TEST, Layer, layer_types
from scaffe.layers.kernels.plans import SigningPlan, ThinningPlan
from scaffe.layers.kernels.specs import NO_DIFFS, NOT_FUSED, Fused, FusedDiffs, NormPasses, NormSpec, Thinned


@layer_types.register("BatchNorm")
class BatchNorm(Layer):
    """y = (x - mean) / sqrt(variance + eps), for each channel (Caffe 1.0's behaviour).

    Training takes the mean and variance of the batch, testing the running averages; ``use_global_stats`` sets the
    choice whatever the phase.

    Blobs: the running sum of batch means, (C,); the running sum of batch variances, (C,), each variance multiplied by
    m / (m - 1) for m elements per channel; and the sum of the weights, (1,), that divides both. Each forward with
    the batch's statistics multiplies all three by ``moving_average_fraction``, then adds the batch's numbers and 1. The
    solver does not change them.

    A Scale or Bias layer with one number per channel and a ReLU that follow are fused with this layer, forward and
    backward. Backward then needs only one of their activations: this layer's bottom. A sum with another blob (Eltwise)
    and the ReLU behind it are fused in forward alone.

    Attributes:
        saves_signs: whether the fused forward writes its top's ``sign_bits``, where it can. Set before ``reshape``.
        thinned: the places of the top whose gradient counts; backward finds these alone, at the front of the diff.

    Raises LayerError if the statistics are given a learning rate, or the number of channels changed after setup.
    """

    spec: NormSpec | None = None  # of the kernels' plan, if there is one
    recordable = repeatable = True
    keeps_bottom = True
    saves_signs = False
    thinned: Thinned | None = None
    _affine: Affine | None = None
    _slope: float | None = None
    _adds = False
    _slope_of_sum: float | None = None
    has_half_kernels = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the three blobs of statistics, with rate 0. Raises LayerError without channels."""
        check_n_axes(1, bottom[0])
        p = self.param.batch_norm_param
        self._uses_sums = p.use_global_stats if p.HasField("use_global_stats") else self.context.phase == TEST
        self.by_image = self._uses_sums and bottom[0].ndim > 1
        self.writes_params = not self._uses_sums
        self._n_channels = bottom[0].shape[1] if bottom[0].ndim > 1 else 1
        if not self._n_channels:
            raise LayerError(f"needs at least one channel, got shape {bottom[0].shape}")
        for shape in ((self._n_channels,), (self._n_channels,), (1,)):
            self.add_blob(shape, None)
        for i in range(3):
            if len(self.param.param) == i:
                self.param.param.add().lr_mult = 0
            elif self.param.param[i].lr_mult != 0:
                raise LayerError(f"statistics do not learn: param {i} must have lr_mult 0")

    def fuse(self, following: Layer) -> bool:
        """Fuse a Scale or Bias with one number per channel, then a sum of two, then a ReLU; each may be missing."""
        slope = getattr(following, "relu_slope", None)
        if self._slope is not None or self._slope_of_sum is not None:
            return False
        if self._adds:
            self._slope_of_sum = slope
            return slope is not None
        if getattr(following, "adds_two", False):
            self._adds = True
            return True
        if slope is not None:
            self._slope = slope
        elif self._affine is None and isinstance(following, Affine) and following.is_fusable:
            self._affine = following
        else:
            return False
        self.n_fused_back += 1
        return True

    def per_channel(self) -> tuple[np.ndarray, np.ndarray] | None:
        """See Layer: with the running averages, in float64."""
        if not self._uses_sums or self._rows is None:
            return None
        total = float(self.blobs[2].data_flat[0])
        mean, variance = (blob.data_flat.astype(np.float64) / (total or np.inf) for blob in self.blobs[:2])
        scale = 1 / np.sqrt(variance + self.param.batch_norm_param.eps)
        return scale, -mean * scale

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0]
        check_n_axes(1, x)
        if (x.shape[1] if x.ndim > 1 else 1) != self._n_channels:
            raise LayerError(f"has statistics of {self._n_channels} channels, the bottom is {x.shape}")
        if top[0] is not x:
            top[0].reshape(x.shape)
        p, shape = self.param.batch_norm_param, x.shape if x.ndim > 1 else (*x.shape, 1)
        self._rows = Rows(x, 1) if x.ndim > 1 else None
        spec = NormSpec(shape, p.eps, p.moving_average_fraction, self.context.dtype)
        keeps = top[0] is x and not self.forward_only
        self._kept = self.context.xp.empty((spec.n_rows, spec.n_channels), x.dtype) if keeps else None
        self.spec, self._plan, top[0].sign_bits = spec, self.context.kernels.batch_norm(spec), None
        self._signs = self.context.xp.zeros(x.n_elems // 8, np.uint8) if self._can_save_signs() else None

    def _can_save_signs(self) -> bool:
        slope = self._slope_of_sum if self._adds else self._slope
        return (self.saves_signs and not self._uses_sums and isinstance(self._plan, SigningPlan)
                and self._plan.can_write_signs(slope, self._adds))

    def takes_thinned(self, top: Blob) -> bool:
        """Whether ``thinned`` may be set."""
        return top.ndim == 4 and top.channels_last and not self._uses_sums and isinstance(self._plan, ThinningPlan)

    def passes(self, bottom: Sequence[Blob], top: Sequence[Blob], propagate_down: Sequence[bool]) -> NormPasses:
        """Which passes of the kernels' plan of ``spec`` run, if backward computes these bottoms' gradients; empty: it
        does not run."""
        trains = not self._uses_sums and top[0] is not bottom[0]
        slope = self._slope_of_sum if self._adds else self._slope
        return NormPasses(trains, self._adds, slope, trains and any(propagate_down[:1]), self._slope)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward(bottom[0], top[0], NOT_FUSED)
        top[0].sign_bits = None

    def forward_fused(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Normalise and apply the fused layers in one pass; ``bottom[1]`` is what a fused sum adds."""
        fused = self._fused()
        if self._adds:
            fused = replace(fused, addend=self._data(bottom[1]), slope=self._slope_of_sum)
        self._forward(bottom[0], top[0], replace(fused, signs=self._signs))
        wrote = isinstance(self._plan, SigningPlan) and self._plan.wrote_signs
        top[0].sign_bits = self._signs if wrote else None

    def forward_again(self, bottom: Sequence[Blob], top: Sequence[Blob], fused: bool) -> None:
        """See Layer: the running statistics stay as they are."""
        statistics = [blob.data_flat.copy() for blob in self.blobs]
        super().forward_again(bottom, top, fused)
        for blob, before in zip(self.blobs, statistics, strict=True):
            blob.data_flat[...] = before

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """gx = (gy - mean(gy) - y mean(gy y)) / sqrt(variance + eps), with the means taken over each channel; with the
        running averages as statistics, gx = gy / sqrt(variance + eps)."""
        if propagate_down[0]:
            self._backward(top[0], bottom[0], NOT_FUSED)

    def backward_fused(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradients of the bottom and of the fused layers' parameters in one pass."""
        diffs = NO_DIFFS if self._affine is None else self._affine.fused_diffs()
        self._backward(top[0], bottom[0], self._fused(), diffs, propagate_down[0])

    def unfuse(self) -> None:
        """Write the normalised values that an in-place Scale keeps for its own backward."""
        if self.thinned is not None:
            raise LayerError("its gradient is kept in part, which backward layer by layer would not know")
        kept = None if self._affine is None else self._affine.kept
        if kept is None:
            return
        xn = self._data(kept)
        self._plan.normalized(self._data(self._bottom) if self._kept is None else self._kept, xn)
        if self._rows is not None:
            self._rows.put_data(xn, kept)

    def _fused(self) -> Fused:
        return replace(NOT_FUSED if self._affine is None else self._affine.fused(), slope=self._slope)

    def _forward(self, bottom: Blob, top: Blob, fused: Fused) -> None:
        x, self._bottom = self._data(bottom), bottom
        y, sums = self._data(top), [blob.data_flat for blob in self.blobs]
        forward = self._plan.forward_fixed if self._uses_sums else self._plan.forward_train
        forward(x, y, sums, fused, self._kept)
        if self._rows is not None:
            self._rows.put_data(y, top)

    def _backward(self, top: Blob, bottom: Blob, fused: Fused, diffs: FusedDiffs = NO_DIFFS,
                  wanted: bool = True) -> None:
        x = self._data(bottom) if self._kept is None else self._kept
        gx = self._diff(bottom) if wanted else None
        if self.thinned is not None and isinstance(self._plan, ThinningPlan):
            kept = replace(self.thinned, shape=top.shape)
            self._plan.backward_thinned(x, top.diff_flat[:kept.n_kept], gx, kept, fused, diffs)
        else:
            self._plan.backward(x, self._diff(top), gx, fused, diffs)
        if self._rows is not None and gx is not None:
            self._rows.put_diff(gx, bottom)

    def _data(self, blob: Blob) -> np.ndarray:
        return blob.data_flat.reshape(-1, 1) if self._rows is None else self._rows.data(blob)

    def _diff(self, blob: Blob) -> np.ndarray:
        return blob.diff_flat.reshape(-1, 1) if self._rows is None else self._rows.diff(blob)


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
