"""Batch normalisation of (rows, channels) with Caffe's running sums."""

from __future__ import annotations

import numpy as np

from layers.kernels.channels import moments, normalize, normalize_back


class BatchNorm:
    """y = (x - mean) / sqrt(variance + eps) per channel.

    Args:
        n_rows, n_channels: of x.
        eps: see above.
        fraction: what is left of the running sums at each step.
        dtype: of x and y.
    """

    def __init__(self, n_rows: int, n_channels: int, eps: float, fraction: float,
                 dtype: np.dtype | type = np.float32) -> None:
        self._eps, self._fraction, self._dtype = eps, fraction, np.dtype(dtype)
        self._correction = n_rows / (n_rows - 1) if n_rows > 1 else 1.0
        self._fixed = False

    def forward_train(self, x: np.ndarray, y: np.ndarray, means: np.ndarray, variances: np.ndarray,
                      factor: np.ndarray, kept: np.ndarray | None = None) -> None:
        """By the mean and variance of x; the running sums (C,), (C,), (1,) are brought up to date.

        y may be x; ``kept`` takes a copy of x first.
        """
        mean, variance = moments(x)
        for sums, news in ((means, mean), (variances, variance * self._correction), (factor, 1.0)):
            sums[...] = sums * self._fraction + news
        self._fixed = False
        self._normalize(x, y, mean, variance, kept)

    def forward_fixed(self, x: np.ndarray, y: np.ndarray, means: np.ndarray, variances: np.ndarray,
                      factor: np.ndarray, kept: np.ndarray | None = None) -> None:
        """By the running sums. y may be x; ``kept`` takes a copy of x first."""
        mean, variance, total = (sums.astype(np.float64) for sums in (means, variances, factor))
        scale = 0 if total[0] == 0 else 1 / total[0]
        self._fixed = True
        self._normalize(x, y, mean * scale, variance * scale, kept)

    def _normalize(self, x: np.ndarray, y: np.ndarray, mean: np.ndarray, variance: np.ndarray,
                   kept: np.ndarray | None) -> None:
        self._mean = mean.astype(self._dtype)
        self._inverse = (1 / np.sqrt(variance + self._eps)).astype(self._dtype)
        normalize(x, self._mean, self._inverse, y, kept)

    def backward(self, x: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """gx = (gy - mean(gy) - y mean(gy y)) / sqrt(variance + eps); with running sums gy / sqrt alone. gx may be gy.

        Args:
            x: what the last forward got.
        """
        if self._fixed:
            np.multiply(gy, self._inverse, out=gx)
        else:
            normalize_back(x, gy, gx, self._mean, self._inverse)
