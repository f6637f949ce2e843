"""Regions to a fixed size: ROIPooling (Fast R-CNN), PSROIPooling (R-FCN), ROIAlign (Mask R-CNN)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import clear_wanted
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types

Edges = tuple[np.ndarray, np.ndarray]  # the first pixel of each bin and the one behind its last, int64 (R, bins)
LEAST_LENGTH = 0.1  # of a region, in pixels of the features (R-FCN)


class _Regions(Layer):
    """The base of all: features (N, C, H, W) and regions (R, 5), which have no gradient."""

    n_bottoms = (2, 2)
    host_only = True
    exact_bottoms = (1,)
    gradient_bottoms = (0,)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        clear_wanted(bottom, propagate_down)
        if propagate_down[0]:
            self._add_gradient(top[0].diff_storage, bottom[0].diff_storage)

    def _add_gradient(self, gradient: np.ndarray, features: np.ndarray) -> None:
        """Add the gradient of the top to that of the features, both channels-last."""
        raise NotImplementedError

    @staticmethod
    def _check(bottom: Sequence[Blob], *pooled: int) -> None:
        """Raise LayerError if the bottoms' shapes are wrong, or one of the numbers is not above 0."""
        if min(pooled) < 1:
            raise LayerError(f"pools to at least 1 x 1, got {' x '.join(map(str, pooled))}")
        if bottom[0].ndim != 4 or bottom[1].count(1) != 5:
            raise LayerError(f"wants features of 4 axes and regions (R, 5), got {bottom[0].shape}, {bottom[1].shape}")

    @staticmethod
    def _read(bottom: Sequence[Blob]) -> tuple[np.ndarray, np.ndarray]:
        """The item of each region, int64 (R,), which must be in the batch, and its corners x1, y1, x2, y2, (R, 4)."""
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
    """Fast R-CNN's bins of ranges from ``first`` to ``last``, (R,), both included, in pixels of the input image; the
    range is rounded to whole pixels of the features first. These are ``scale`` pixels each, and ``length`` along the
    axis."""
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


@layer_types.register("ROIPooling")
class RoiPooling(_Regions):
    """Max pooling of rectangular regions, each divided into pooled_h by pooled_w bins.

    Bottoms: features (N, C, H, W); regions (R, 5), each (item in the batch, x1, y1, x2, y2) in pixels of the input
    image, both corners included. Top: (R, C, pooled_h, pooled_w).

    The corners are multiplied by spatial_scale, from pixels of the input image to those of the features, and rounded,
    half away from 0. ``pad_ratio`` adds that part of a region's length at each of its ends (Cascade R-CNN). An empty
    bin gives 0. Regions have no gradient.
    """

    temporaries, persistent_temporaries = 3, 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.roi_pooling_param
        self._check(bottom, p.pooled_h, p.pooled_w)
        top[0].reshape((bottom[1].shape[0], bottom[0].shape[1], p.pooled_h, p.pooled_w))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        from scaffe.layers.kernels.cpu.boxes import max_of_bins

        p, (height, width) = self.param.roi_pooling_param, bottom[0].shape[2:]
        self._items, corners = self._read(bottom)
        x1, y1, x2, y2 = padded(corners, p.pad_ratio).T
        rows = whole_bins(y1, y2, p.spatial_scale, p.pooled_h, height)
        columns = whole_bins(x1, x2, p.spatial_scale, p.pooled_w, width)
        self._places = np.empty(top[0].storage_shape, np.int64)
        max_of_bins(bottom[0].data_storage, self._items, *rows, *columns, top[0].data_storage, self._places)

    def _add_gradient(self, gradient: np.ndarray, features: np.ndarray) -> None:
        from scaffe.layers.kernels.cpu.boxes import max_of_bins_back

        n_items, height, width, n_channels = features.shape
        max_of_bins_back(gradient, self._items, self._places, features.reshape(n_items, height * width, n_channels))


def padded(corners: np.ndarray, ratio: float) -> np.ndarray:
    """Corners (R, 4) of regions made longer at each end by that part of their length."""
    margins = (corners[:, 2:] - corners[:, :2] + 1) * corners.dtype.type(ratio)
    return np.concatenate([corners[:, :2] - margins, corners[:, 2:] + margins], axis=1)


@layer_types.register("PSROIPooling")
class PsRoiPooling(_Regions):
    """Average pooling of regions, each divided into group_size x group_size bins, each bin from a map of its own.

    Bottoms: score maps (N, output_dim · group_size², H, W); regions (R, 5), each (item in the batch, x1, y1, x2, y2) in
    pixels of the input image, both corners included. Top: (R, output_dim, group_size, group_size).

    The corners are rounded, half away from 0, and then multiplied by spatial_scale. An empty bin gives 0. Regions have
    no gradient.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.psroi_pooling_param
        self._check(bottom, p.output_dim, p.group_size)
        if bottom[0].shape[1] != p.output_dim * p.group_size**2:
            raise LayerError(f"wants {p.output_dim * p.group_size**2} channels for output_dim {p.output_dim} and "
                             f"group_size {p.group_size}, got a bottom of shape {bottom[0].shape}")
        top[0].reshape((bottom[1].shape[0], p.output_dim, p.group_size, p.group_size))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        from scaffe.layers.kernels.cpu.boxes import means_by_position

        p, (height, width) = self.param.psroi_pooling_param, bottom[0].shape[2:]
        self._items, corners = self._read(bottom)
        x1, y1, x2, y2 = corners.T
        self._bins = (*exact_bins(y1, y2, p.spatial_scale, p.group_size, height),
                      *exact_bins(x1, x2, p.spatial_scale, p.group_size, width))
        means_by_position(bottom[0].data_storage, self._items, *self._bins, top[0].data_storage)

    def _add_gradient(self, gradient: np.ndarray, features: np.ndarray) -> None:
        from scaffe.layers.kernels.cpu.boxes import means_by_position_back

        means_by_position_back(gradient, self._items, *self._bins, features)


MOST_SAMPLES = 1 << 13  # of a bin along an axis
Grids = tuple[np.ndarray, np.ndarray]  # y0, dy, x0, dx of each region (R, 4); samples per bin, int64 (R, 2)


@layer_types.register("ROIAlign")
class RoiAlign(_Regions):
    """Bilinear samples of rectangular regions.

    Bottoms: features (N, C, H, W); regions (R, 5), each (item in the batch, x1, y1, x2, y2) in pixels of the input
    image. Top: (R, C, pooled_h, pooled_w) with ``roi_align_param``: each bin is the mean of sampling_ratio x
    sampling_ratio samples (if that is not above 0: of one a pixel). With ``roi_pooling_param`` the top is (R, C,
    pooled_h + 1, pooled_w + 1): samples at the corners of the bins.

    Regions have no gradient.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._at_corners = self.param.HasField("roi_pooling_param")
        p = self.param.roi_pooling_param if self._at_corners else self.param.roi_align_param
        self._check(bottom, p.pooled_h, p.pooled_w)
        pooled = p.pooled_h + self._at_corners, p.pooled_w + self._at_corners
        top[0].reshape((bottom[1].shape[0], bottom[0].shape[1], *pooled))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        from scaffe.layers.kernels.cpu.boxes import bilinear_means

        items, corners = self._read(bottom)
        if self._at_corners:
            p, margin = self.param.roi_pooling_param, 0.5
            grids = corner_grids(padded(corners, p.pad_ratio) * p.spatial_scale - 0.5, (p.pooled_h, p.pooled_w))
        else:
            a, margin = self.param.roi_align_param, 1.0
            grids = mean_grids(corners * a.spatial_scale, (a.pooled_h, a.pooled_w), a.sampling_ratio)
        self._samples = items, *grids, margin
        bilinear_means(bottom[0].data_storage, *self._samples, top[0].data_storage)

    def _add_gradient(self, gradient: np.ndarray, features: np.ndarray) -> None:
        from scaffe.layers.kernels.cpu.boxes import bilinear_means_back

        bilinear_means_back(gradient, *self._samples, features)


def mean_grids(corners: np.ndarray, pooled: tuple[int, int], ratio: int) -> Grids:
    """The samples of bins that are means, for corners x1, y1, x2, y2 (R, 4) in pixels of the features; a region is at
    least one pixel long. A bin has ``ratio`` samples along each axis, or if that is not above 0 as many as it has
    pixels, rounded up."""
    starts, n_bins = corners[:, 1::-1], np.array(pooled)
    steps = np.maximum(corners[:, :1:-1] - starts, 1) / n_bins  # of the bins: rows, columns
    counts = np.full(steps.shape, ratio) if ratio > 0 else np.ceil(steps)
    if not (counts <= MOST_SAMPLES).all():
        raise LayerError(f"takes at most {MOST_SAMPLES} samples of a bin along an axis, got {counts.max():g}")
    steps = steps / counts
    return _grids(starts + steps / 2, steps), counts.astype(np.int64)


def corner_grids(corners: np.ndarray, pooled: tuple[int, int]) -> Grids:
    """The samples at the corners of bins; a region without an area has none. Arguments as of ``mean_grids``."""
    starts = corners[:, 1::-1]
    steps = (corners[:, :1:-1] - starts) / np.array(pooled)
    counts = np.repeat((steps > 0).all(axis=1, keepdims=True), 2, axis=1)
    return _grids(starts, steps), counts.astype(np.int64)


def _grids(starts: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """y0, dy, x0, dx."""
    return np.ascontiguousarray(np.stack([starts, steps], axis=2).reshape(-1, 4))
