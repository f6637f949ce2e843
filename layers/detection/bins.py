"""Regions of interest and the bins that they are divided into: pure functions on arrays of coordinates.

A range of a region, along one axis, is divided into bins of equal length; the bins are rounded outwards to whole
pixels, so that they may overlap, and cut to the image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError

Edges = tuple[np.ndarray, np.ndarray]  # the first pixel of each bin and the one behind its last, int64 (R, bins)
LEAST_LENGTH = 0.1  # of a region, in pixels of the features (R-FCN)


def check_regions(bottom: Sequence[Blob], pooled: Sequence[int]) -> None:
    """Raise LayerError unless the bottoms are features (N, C, H, W) and regions (R, 5), and ``pooled`` is above 0."""
    if min(pooled) < 1:
        raise LayerError(f"pools to at least 1 x 1, got {' x '.join(map(str, pooled))}")
    if bottom[0].ndim != 4 or bottom[1].count(1) != 5:
        raise LayerError(f"wants features of 4 axes and regions (R, 5), got {bottom[0].shape}, {bottom[1].shape}")


def read_regions(bottom: Sequence[Blob]) -> tuple[np.ndarray, np.ndarray]:
    """The item of each region, int64 (R,), and its corners x1, y1, x2, y2, (R, 4).

    Raises:
        LayerError: a region names an item that is not in the batch.
    """
    regions, n_items = bottom[1].data.reshape(-1, 5), bottom[0].shape[0]
    items = regions[:, 0].astype(np.int64)
    if not ((items >= 0) & (items < n_items)).all():
        raise LayerError(f"regions name items {items.min()} to {items.max()} of a batch of {n_items}")
    return items, regions[:, 1:]


def rounded(values: np.ndarray) -> np.ndarray:
    """The nearest whole numbers, halves away from 0 (C's ``round``)."""
    whole: np.ndarray = np.sign(values) * np.floor(np.abs(values) + values.dtype.type(0.5))
    return whole


def whole_bins(first: np.ndarray, last: np.ndarray, scale: float, n_bins: int, length: int) -> Edges:
    """Fast R-CNN's bins: the range is rounded to whole pixels first.

    Args:
        first, last: the ends of the ranges, (R,), both included, in pixels of the input image.
        scale: from those to pixels of the features.
        n_bins: number of bins.
        length: of the features along this axis.
    """
    real = first.dtype.type
    starts, ends = (rounded(values * real(scale)) for values in (first, last))
    steps = np.maximum(ends - starts + 1, 1) / real(n_bins)
    return _cut(np.zeros_like(starts), steps, starts.astype(np.int64), n_bins, length)


def exact_bins(first: np.ndarray, last: np.ndarray, scale: float, n_bins: int, length: int) -> Edges:
    """R-FCN's bins: the ends are rounded in the input image, not in the features. Arguments as of ``whole_bins``."""
    real = first.dtype.type
    starts, ends = rounded(first) * real(scale), (rounded(last) + 1) * real(scale)
    steps = np.maximum(ends - starts, real(LEAST_LENGTH)) / real(n_bins)
    return _cut(starts, steps, np.zeros(len(starts), np.int64), n_bins, length)


def _cut(starts: np.ndarray, steps: np.ndarray, offsets: np.ndarray, n_bins: int, length: int) -> Edges:
    places = np.arange(n_bins + 1, dtype=steps.dtype) * steps[:, None] + starts[:, None]
    firsts = np.floor(places[:, :-1]).astype(np.int64) + offsets[:, None]
    ends = np.ceil(places[:, 1:]).astype(np.int64) + offsets[:, None]
    return np.clip(firsts, 0, length), np.clip(ends, 0, length)
