"""Batch normalisation of (rows, channels) with Caffe's running sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.kernels.cpu.column_moments import moments
from scaffe.layers.kernels.cpu.column_sums import BLOCK, WIDE
from scaffe.layers.kernels.cpu.normalize import Transform
from scaffe.layers.kernels.cpu.words import wide
from scaffe.layers.kernels.extents import expect_shape
from scaffe.layers.kernels.norms import NO_DIFFS, NOT_FUSED, Fused, FusedDiffs, NormSpec

Sums = Sequence[np.ndarray]  # of means (C,), of corrected variances (C,), and their factor (1,)


class BatchNorm:
    """xn = (x - mean) / sqrt(variance + eps) per channel, then y = relu(xn · scale + bias), each part only if fused.

    Args:
        spec: the geometry.
    """

    def __init__(self, spec: NormSpec) -> None:
        self.spec = spec
        self._real = np.dtype(WIDE) if spec.n_rows <= BLOCK else wide(spec.dtype)
        self._mean, self._inverse = np.zeros(spec.n_channels, self._real), np.ones(spec.n_channels, self._real)
        self._fixed = False

    def forward_train(self, x: np.ndarray, y: np.ndarray, sums: Sums, fused: Fused = NOT_FUSED,
                      kept: np.ndarray | None = None) -> None:
        """Write y, normalised with the mean and variance of x, and update the running sums.

        y may be x; ``kept`` gets a copy of x.
        """
        self._check(x, y, kept)
        mean, variance = moments(x)
        for total, news in zip(sums, (mean, variance * self.spec.correction, np.ones(1)), strict=True):
            with np.errstate(over="ignore"):  # in nets that diverge, the sums are infinite, as in Caffe
                total[...] = total * self.spec.fraction + news
        self._fixed = False
        self._normalize(mean, variance)
        self._transform(fused).forward(x, y, kept)

    def forward_fixed(self, x: np.ndarray, y: np.ndarray, sums: Sums, fused: Fused = NOT_FUSED,
                      kept: np.ndarray | None = None) -> None:
        """Write y, normalised with the running sums. y may be x; ``kept`` gets a copy of x."""
        self._check(x, y, kept)
        mean, variance, total = (s.astype(np.float64) for s in sums)
        scale = 0 if total[0] == 0 else 1 / total[0]
        self._fixed = True
        self._normalize(mean * scale, variance * scale)
        self._transform(fused).forward(x, y, kept)

    def _normalize(self, mean: np.ndarray, variance: np.ndarray) -> None:
        self._mean = mean.astype(self._real)
        self._inverse = (1 / np.sqrt(variance + self.spec.eps)).astype(self._real)

    def _check(self, *rows: np.ndarray | None) -> None:
        expect_shape((self.spec.n_rows, self.spec.n_channels), *rows)

    def _transform(self, fused: Fused) -> Transform:
        return Transform(self._mean, self._inverse, fused)

    def normalized(self, x: np.ndarray, xn: np.ndarray) -> None:
        """Write to xn x normalised as in the last forward, without scale, bias and ReLU."""
        self._check(x, xn)
        self._transform(NOT_FUSED).forward(x, xn)

    def backward(self, x: np.ndarray, gy: np.ndarray, gx: np.ndarray | None, fused: Fused = NOT_FUSED,
                 diffs: FusedDiffs = NO_DIFFS) -> None:
        """Compute the gradients of x, scale and bias.

        With g the gradient before the ReLU: gx = (g - mean(g) - xn mean(g xn)) · scale / sqrt(variance + eps), or
        g · scale / sqrt(variance + eps) if the last forward used the running sums.

        Args:
            x: the input of the last forward (rows, channels).
            gy: the gradient of y.
            gx: gets the gradient of x; may be gy; None: not wanted.
            fused: as in the last forward.
            diffs: the arrays for the gradients of scale, sum(g xn), and bias, sum(g).
        """
        self._check(x, gy, gx)
        transform = self._transform(fused)
        wanted = diffs.scale is not None or diffs.bias is not None
        if wanted or not self._fixed:
            products, sums = transform.sums(x, gy)
            for target, gradient in ((diffs.scale, products * self._inverse), (diffs.bias, sums)):
                if target is not None:
                    target[...] = gradient if diffs.overwrite else target + gradient
        if gx is None:
            return
        if self._fixed:
            transform.backward_fixed(x, gy, gx)
        else:
            transform.backward(x, gy, gx, products, sums)
