"""BatchNorm where each rank has its own images, or some rows of pixels: statistics over all ranks of a replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.normalization.batch_norm import BatchNorm
from scaffe.training.partition.group import Group


class SharedNorm(BatchNorm):
    """BatchNorm in training with the mean and variance of the whole replica's batch (Ioffe and Szegedy 2015).

    The ranks exchange sums of x and x^2 forward, of gy and gy y backward: two numbers a channel, in float64.
    Bottom and top: (own images, C, ...) or (G, C, own rows, W). Nothing is fused with it.
    """

    def __init__(self, param: Any, context: Context, group: Group) -> None:
        super().__init__(param, context)
        self._group = group

    def fuse(self, following: Any) -> bool:
        return False

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if top[0] is not bottom[0]:
            top[0].reshape(bottom[0].shape)
        self._others = (0, *range(2, bottom[0].ndim))  # the axes that statistics are taken over

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].data
        sums = np.stack([x.sum(self._others, dtype=np.float64), np.square(x, dtype=np.float64).sum(self._others),
                         np.full(x.shape[1], x.size / x.shape[1])])
        self._group.sum(sums)
        self._count = float(sums[2, 0])
        mean = sums[0] / self._count
        variance = np.maximum(sums[1] / self._count - mean * mean, 0)
        self._scale = _spread(1 / np.sqrt(variance + self.param.batch_norm_param.eps), x)
        self._normalized = (x - _spread(mean, x)) * self._scale
        top[0].data[...] = self._normalized
        fraction = self.param.batch_norm_param.moving_average_fraction
        unbiased = self._count / max(self._count - 1, 1)
        for blob, new in zip(self.blobs, (mean, variance * unbiased, 1), strict=True):
            blob.data[...] = blob.data * fraction + new

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """gx = (gy - mean(gy) - y mean(gy y)) / sqrt(variance + eps)."""
        if not propagate_down[0]:
            return
        gy, y = top[0].diff, self._normalized
        sums = np.stack([gy.sum(self._others, dtype=np.float64),
                         np.multiply(gy, y, dtype=np.float64).sum(self._others)])
        self._group.sum(sums)
        mean, slope = (_spread(total / self._count, y) for total in sums)
        bottom[0].diff[...] = (gy - mean - y * slope) * self._scale


def _spread(numbers: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A number a channel, to be broadcast over x, (N, C, ...)."""
    return numbers.astype(x.dtype).reshape(1, -1, *[1] * (x.ndim - 2))
