"""ROIAlign: bilinear samples of regions, at places that are not rounded (Mask R-CNN, He et al. 2017, section 3).

Formulas: with ``roi_align_param`` that of Detectron and its ports to Caffe; with ``roi_pooling_param`` that of
zhaoweicai/cascade-rcnn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.detection.bins import check_regions, read_regions
from scaffe.layers.detection.roi_pooling import padded

MOST_SAMPLES = 1 << 13  # of a bin along an axis
Grids = tuple[np.ndarray, np.ndarray]  # y0, dy, x0, dx of each region (R, 4); samples per bin, int64 (R, 2)


@layer_types.register("ROIAlign")
class RoiAlign(Layer):
    """Bilinear samples of rectangular regions.

    Bottoms: features (N, C, H, W); regions (R, 5), each (item in the batch, x1, y1, x2, y2) in pixels of the input
    image. Top: (R, C, pooled_h, pooled_w) with ``roi_align_param``: each bin is the mean of sampling_ratio x
    sampling_ratio samples (if that is not above 0: of one a pixel). With ``roi_pooling_param`` the top is (R, C,
    pooled_h + 1, pooled_w + 1): samples at the corners of the bins.

    Regions have no gradient.
    """

    n_bottoms = (2, 2)
    host_only = True
    exact_bottoms = (1,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top. Raises LayerError if a bottom has another shape or pooled_h or pooled_w is below 1."""
        self._at_corners = self.param.HasField("roi_pooling_param")
        p = self.param.roi_pooling_param if self._at_corners else self.param.roi_align_param
        check_regions(bottom, (p.pooled_h, p.pooled_w))
        pooled = p.pooled_h + self._at_corners, p.pooled_w + self._at_corners
        top[0].reshape((bottom[1].shape[0], bottom[0].shape[1], *pooled))

    def allow_force_backward(self, bottom_index: int) -> bool:
        """Regions have no gradient."""
        return bottom_index == 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Sample. Raises LayerError if a region names an item not in the batch, or has too many samples."""
        from scaffe.layers.kernels.cpu.bilinear_samples import bilinear_means

        items, corners = read_regions(bottom)
        if self._at_corners:
            p, margin = self.param.roi_pooling_param, 0.5
            grids = corner_grids(padded(corners, p.pad_ratio) * p.spatial_scale - 0.5, (p.pooled_h, p.pooled_w))
        else:
            a, margin = self.param.roi_align_param, 1.0
            grids = mean_grids(corners * a.spatial_scale, (a.pooled_h, a.pooled_w), a.sampling_ratio)
        self._samples = items, *grids, margin
        bilinear_means(bottom[0].data_storage, *self._samples, top[0].data_storage)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Share each bin's gradient among the pixels that it was sampled from; the regions' is 0."""
        from scaffe.layers.kernels.cpu.bilinear_samples import bilinear_means_back

        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted:
                blob.diff_flat[...] = 0
        if propagate_down[0]:
            bilinear_means_back(top[0].diff_storage, *self._samples, bottom[0].diff_storage)


def mean_grids(corners: np.ndarray, pooled: tuple[int, int], ratio: int) -> Grids:
    """The samples of bins that are means. A region is at least one pixel long.

    Args:
        corners: x1, y1, x2, y2 in pixels of the features, (R, 4).
        pooled: rows and columns of bins.
        ratio: samples of a bin along each axis; 0 or less: as many as it has pixels, rounded up.

    Raises:
        LayerError: so many that it would not end.
    """
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
