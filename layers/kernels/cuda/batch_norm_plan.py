"""Batch normalisation of (rows, channels) by our own kernels, with Caffe's running sums on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import Part, arena
from scaffe.layers.kernels.cuda.channels import I, by_rows, parts_of, per_channel, sum_parts
from scaffe.layers.kernels.cuda.launch import wide
from scaffe.layers.kernels.extents import expect_elems, expect_shape
from scaffe.layers.kernels.specs import NO_DIFFS, NOT_FUSED, Fused, FusedDiffs, NormSpec

FAMILY = "batch_norm"


class BatchNorm:
    """xn = (x - mean) / sqrt(variance + eps) per channel; y = relu(xn · scale + bias + addend), each part if fused.
    ``mean`` and ``inverse``, 1 / sqrt(variance + eps), (C,), are the last forward's, float32 for half types; ``fixed``
    if they came from the running sums."""

    def __init__(self, spec: NormSpec) -> None:
        cupy, self._real = device.load(), wide(spec.dtype)
        self.spec = spec
        self.mean, self.inverse = cupy.zeros(spec.n_channels, self._real), cupy.ones(spec.n_channels, self._real)
        self.fixed = False
        self._parts: tuple[Part, ...] = (parts_of(spec.n_rows, spec.n_channels, spec.dtype),
                                         (spec.n_channels, self._real), (spec.n_channels, self._real))
        arena.reserve(*self._parts)

    def forward_train(self, x: Any, y: Any, sums: Any, fused: Fused = NOT_FUSED, kept: Any = None) -> None:
        self._check(x, y, kept)
        (parts,) = arena.take(self._parts[0])
        sum_parts("sum_squares", x, (x,), parts)
        self._per_channel("finish_training", x, parts, self.mean, self.inverse, *sums, *self.numbers(),
                          I(x.shape[0]), I(parts.shape[1]))
        self.fixed = False
        self._normalize(x, y, fused, kept)

    def forward_fixed(self, x: Any, y: Any, sums: Any, fused: Fused = NOT_FUSED, kept: Any = None) -> None:
        self._check(x, y, kept)
        self._per_channel("finish_fixed", *sums, self.mean, self.inverse, np.float64(self.spec.eps))
        self.fixed = True
        self._normalize(x, y, fused, kept)

    def add_to_sums(self, sums: Any) -> None:
        """Update the running sums from ``mean`` and ``inverse``, which the caller has computed for a batch."""
        self._per_channel("add_to_sums", self.mean, self.inverse, *sums, *self.numbers())
        self.fixed = False

    def normalized(self, x: Any, xn: Any) -> None:
        self._check(x, xn)
        self._normalize(x, xn, NOT_FUSED, None)

    def backward(self, x: Any, gy: Any, gx: Any, fused: Fused = NOT_FUSED, diffs: FusedDiffs = NO_DIFFS) -> None:
        self._check(x, gy, gx)
        parts, level, tilt = arena.take(*self._parts)
        affine = self._affine(fused)
        if diffs.scale is not None or diffs.bias is not None or not self.fixed:
            sum_parts("sum_back", x, (x, gy, *affine), parts, FAMILY)
            self._per_channel("finish_back", parts, self.inverse, level, tilt, diffs.scale, diffs.bias,
                              I(not diffs.overwrite), I(x.shape[0]), I(parts.shape[1]))
        if gx is not None:
            shares = (None, None) if self.fixed else (level, tilt)
            by_rows("normalize_back", x, (x, gy, *affine, gx, *shares), FAMILY)

    def leave(self, of_scale: Any, of_bias: Any, diffs: FusedDiffs) -> None:
        """Add gradients of scale and bias, (C,), to ``diffs``, or write them if ``diffs.overwrite``."""
        self._per_channel("leave_both", of_scale, of_bias, diffs.scale, diffs.bias, I(not diffs.overwrite))

    def numbers(self) -> tuple[np.float64, ...]:
        """eps, fraction and correction, as the kernels take them."""
        return np.float64(self.spec.eps), np.float64(self.spec.fraction), np.float64(self.spec.correction)

    def _check(self, *rows: Any) -> None:
        expect_shape((self.spec.n_rows, self.spec.n_channels), *rows)

    def _normalize(self, x: Any, y: Any, fused: Fused, kept: Any) -> None:
        self._check(fused.addend)
        by_rows("normalize", x, (x, *self._affine(fused), fused.addend, y, kept), FAMILY)

    def _affine(self, fused: Fused) -> tuple[Any, ...]:
        expect_elems(self.spec.n_channels, fused.scale, fused.bias)
        slope = self._real.type(1 if fused.slope is None else fused.slope)
        return self.mean, self.inverse, fused.scale, fused.bias, slope

    def _per_channel(self, name: str, *arguments: Any) -> None:
        n_channels = self.spec.n_channels
        per_channel(name, self.spec.dtype, n_channels, (*arguments, I(n_channels)), FAMILY)
