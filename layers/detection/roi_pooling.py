"""ROIPooling: max pooling of regions to a fixed size (Fast R-CNN, Girshick 2015, section 2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.detection.bins import check_regions, read_regions, whole_bins


@layer_types.register("ROIPooling")
class RoiPooling(Layer):
    """Max pooling of rectangular regions, each divided into pooled_h by pooled_w bins.

    Bottoms: features (N, C, H, W); regions (R, 5), each (item in the batch, x1, y1, x2, y2) in pixels of the input
    image, both corners included. Top: (R, C, pooled_h, pooled_w).

    The corners are multiplied by spatial_scale, from pixels of the input image to those of the features, and rounded,
    half away from 0. ``pad_ratio`` adds that part of a region's length at each of its ends (Cascade R-CNN). An empty
    bin gives 0. Regions have no gradient.
    """

    n_bottoms = (2, 2)
    host_only = True
    exact_bottoms = (1,)
    temporaries, lasting = 3, 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top. Raises LayerError if a bottom has another shape or pooled_h or pooled_w is below 1."""
        p = self.param.roi_pooling_param
        check_regions(bottom, (p.pooled_h, p.pooled_w))
        top[0].reshape((bottom[1].shape[0], bottom[0].shape[1], p.pooled_h, p.pooled_w))

    def allow_force_backward(self, bottom_index: int) -> bool:
        """Regions have no gradient."""
        return bottom_index == 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Pool, and keep where each maximum was. Raises LayerError if a region names an item not in the batch."""
        from scaffe.layers.kernels.cpu.regions import max_of_bins

        p, (height, width) = self.param.roi_pooling_param, bottom[0].shape[2:]
        self._items, corners = read_regions(bottom)
        x1, y1, x2, y2 = padded(corners, p.pad_ratio).T
        rows = whole_bins(y1, y2, p.spatial_scale, p.pooled_h, height)
        columns = whole_bins(x1, x2, p.spatial_scale, p.pooled_w, width)
        self._places = np.empty(top[0].storage_shape, np.int64)
        max_of_bins(bottom[0].data_storage, self._items, *rows, *columns, top[0].data_storage, self._places)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add each bin's gradient to the element that was its maximum; the regions' is 0."""
        from scaffe.layers.kernels.cpu.regions import max_of_bins_back

        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted:
                blob.diff_flat[...] = 0
        if propagate_down[0]:
            n_items, n_channels, height, width = bottom[0].shape
            pixels = bottom[0].diff_storage.reshape(n_items, height * width, n_channels)
            max_of_bins_back(top[0].diff_storage, self._items, self._places, pixels)


def padded(corners: np.ndarray, ratio: float) -> np.ndarray:
    """Corners (R, 4) of regions made longer at each end by that part of their length."""
    margins = (corners[:, 2:] - corners[:, :2] + 1) * corners.dtype.type(ratio)
    return np.concatenate([corners[:, :2] - margins, corners[:, 2:] + margins], axis=1)
