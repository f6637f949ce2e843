"""ROIPooling: max pooling of regions to a fixed size (Fast R-CNN, Girshick 2015, section 2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.base.neuron import refuse_gradient

NOWHERE = -1  # the index of an empty bin's maximum


@layer_types.register("ROIPooling")
class RoiPooling(Layer):
    """Max pooling of rectangular regions, each divided into pooled_h by pooled_w bins.

    Bottoms: features (N, C, H, W); regions (R, 5), each (item in the batch, x1, y1, x2, y2) in pixels of the input
    image, both corners included. Top: (R, C, pooled_h, pooled_w).

    The corners are multiplied by spatial_scale, from pixels of the input image to those of the features, and rounded,
    half away from 0. An empty bin gives 0.
    """

    n_bottoms = (2, 2)
    host_only = True
    exact_bottoms = (1,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top. Raises LayerError if a bottom has another shape or pooled_h or pooled_w is below 1."""
        p = self.param.roi_pooling_param
        if p.pooled_h < 1 or p.pooled_w < 1:
            raise LayerError(f"pooled_h and pooled_w are at least 1, got {p.pooled_h} and {p.pooled_w}")
        if bottom[0].ndim != 4 or bottom[1].count(1) != 5:
            raise LayerError(f"wants features of 4 axes and regions (R, 5), got {bottom[0].shape}, {bottom[1].shape}")
        top[0].reshape((bottom[1].shape[0], bottom[0].shape[1], p.pooled_h, p.pooled_w))

    def allow_force_backward(self, bottom_index: int) -> bool:
        """Regions have no gradient."""
        return bottom_index == 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Pool, and keep where each maximum was. Raises LayerError if a region names an item not in the batch."""
        features, pooled = bottom[0].data_storage, top[0].data_storage
        n_items, _, width, n_channels = features.shape
        self._items = bottom[1].data.reshape(-1, 5)[:, 0].astype(np.int64)
        if not ((self._items >= 0) & (self._items < n_items)).all():
            raise LayerError(f"regions name items {self._items.min()} to {self._items.max()} of a batch of {n_items}")
        self._places = np.full(pooled.shape, NOWHERE)
        pooled[...] = 0
        for r, (rows, columns) in enumerate(self._bins(bottom)):
            image = features[self._items[r]]
            for i, (top_row, end_row) in enumerate(rows):
                for j, (left, end_column) in enumerate(columns):
                    window = image[top_row:end_row, left:end_column]
                    if window.size:
                        best = window.reshape(-1, n_channels).argmax(axis=0)
                        row, column = np.divmod(best, end_column - left)
                        self._places[r, i, j] = (top_row + row) * width + left + column
                        pooled[r, i, j] = window[row, column, np.arange(n_channels)]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add each bin's gradient to the element that was its maximum."""
        refuse_gradient(propagate_down, [1])
        if not propagate_down[0]:
            return
        bottom[0].diff_flat[...] = 0
        region, _, _, channel = found = np.nonzero(self._places != NOWHERE)
        n_items, n_channels, height, width = bottom[0].shape
        pixels = bottom[0].diff_storage.reshape(n_items, height * width, n_channels)
        np.add.at(pixels, (self._items[region], self._places[found], channel), top[0].diff_storage[found])

    def _bins(self, bottom: Sequence[Blob]) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
        """For each region, the (start, end) of each row and each column of bins."""
        p = self.param.roi_pooling_param
        dtype = bottom[1].dtype.type
        corners = bottom[1].data.reshape(-1, 5)[:, 1:] * dtype(p.spatial_scale)
        corners = (np.sign(corners) * np.floor(np.abs(corners) + dtype(0.5))).astype(np.int64)
        height, width = bottom[0].shape[2:]
        return [(bin_edges(y1, y2, p.pooled_h, height, dtype), bin_edges(x1, x2, p.pooled_w, width, dtype))
                for x1, y1, x2, y2 in corners.tolist()]


def bin_edges(first: int, last: int, n_bins: int, length: int, dtype: type) -> list[tuple[int, int]]:
    """Divide a range of pixels into bins of equal length. Rounded outwards to whole pixels, they may overlap.

    Args:
        first, last: the range, both included.
        n_bins: number of bins.
        length: length of the image along this axis, in pixels; the bins are cut to it.
        dtype: the type that is computed in.

    Returns:
        (start, end) for each bin; the end is not included.
    """
    step = dtype(max(last - first + 1, 1)) / dtype(n_bins)
    places = np.arange(n_bins + 1, dtype=dtype) * step
    starts = np.clip(first + np.floor(places[:-1]).astype(np.int64), 0, length)
    ends = np.clip(first + np.ceil(places[1:]).astype(np.int64), 0, length)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
