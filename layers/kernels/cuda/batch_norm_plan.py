"""Batch normalisation of (rows, channels) with Caffe's running sums on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from layers import device
from layers.kernels.cuda.arena import arena
from layers.kernels.cuda.channels import (
    I,
    normalize,
    normalize_back,
    parts_of,
    per_channel,
    scale_rows,
    sum_parts,
)
from layers.kernels.cuda.launch import wide


class BatchNorm:
    """y = (x - mean) / sqrt(variance + eps) per channel.

    Args:
        n_rows, n_channels: of x.
        eps: see above.
        fraction: what is left of the running sums at each step.
        dtype: of x and y; the sums are float32 beside half types.
    """

    def __init__(self, n_rows: int, n_channels: int, eps: float, fraction: float,
                 dtype: np.dtype | type = np.float32) -> None:
        cupy, real = device.load(), wide(dtype)
        self._n_channels, self._dtype = n_channels, np.dtype(dtype)
        self._eps, self._fraction = np.float64(eps), np.float64(fraction)
        self._mean, self._inverse = cupy.zeros(n_channels, real), cupy.ones(n_channels, real)
        self._fixed = False
        arena.reserve(parts_of(n_rows, n_channels, dtype), (n_channels, real), (n_channels, real))

    def forward_train(self, x: Any, y: Any, means: Any, variances: Any, factor: Any, kept: Any = None) -> None:
        """By the mean and variance of x; the running sums (C,), (C,), (1,) are brought up to date.

        y may be x; ``kept`` takes a copy of x first.
        """
        (parts,) = arena.take(parts_of(x.shape[0], x.shape[1], x.dtype))
        sum_parts("sum_squares", x, (x,), parts)
        per_channel("finish_training", self._dtype, self._n_channels,
                    (x, parts, self._mean, self._inverse, means, variances, factor, self._eps, self._fraction,
                     I(x.shape[0]), I(parts.shape[1]), I(self._n_channels)))
        self._fixed = False
        normalize(x, self._mean, self._inverse, y, kept)

    def forward_fixed(self, x: Any, y: Any, means: Any, variances: Any, factor: Any, kept: Any = None) -> None:
        """By the running sums. y may be x; ``kept`` takes a copy of x first."""
        per_channel("finish_fixed", self._dtype, self._n_channels,
                    (means, variances, factor, self._mean, self._inverse, self._eps, I(self._n_channels)))
        self._fixed = True
        normalize(x, self._mean, self._inverse, y, kept)

    def backward(self, x: Any, gy: Any, gx: Any) -> None:
        """gx = (gy - mean(gy) - y mean(gy y)) / sqrt(variance + eps); with running sums gy / sqrt alone. gx may be gy.

        Args:
            x: what the last forward got.
        """
        if self._fixed:
            scale_rows(gy, self._inverse, None, gx)
        else:
            normalize_back(x, gy, gx, self._mean, self._inverse)
