"""PSROIPooling: average pooling of regions from maps by position (R-FCN, Dai et al. 2016, section 2, equation 1).

Formula: daijifeng001/caffe-rfcn.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.detection.bins import check_regions, exact_bins, read_regions


@layer_types.register("PSROIPooling")
class PsRoiPooling(Layer):
    """Average pooling of regions, each divided into group_size x group_size bins, each bin from a map of its own.

    Bottoms: score maps (N, output_dim · group_size², H, W); regions (R, 5), each (item in the batch, x1, y1, x2, y2) in
    pixels of the input image, both corners included. Top: (R, output_dim, group_size, group_size).

    The corners are rounded, half away from 0, and then multiplied by spatial_scale. An empty bin gives 0. Regions have
    no gradient.
    """

    n_bottoms = (2, 2)
    host_only = True
    exact_bottoms = (1,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top. Raises LayerError if a bottom has another shape."""
        p = self.param.psroi_pooling_param
        check_regions(bottom, (p.output_dim, p.group_size))
        if bottom[0].shape[1] != p.output_dim * p.group_size**2:
            raise LayerError(f"wants {p.output_dim * p.group_size**2} channels for output_dim {p.output_dim} and "
                             f"group_size {p.group_size}, got a bottom of shape {bottom[0].shape}")
        top[0].reshape((bottom[1].shape[0], p.output_dim, p.group_size, p.group_size))

    def allow_force_backward(self, bottom_index: int) -> bool:
        """Regions have no gradient."""
        return bottom_index == 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Pool. Raises LayerError if a region names an item not in the batch."""
        from scaffe.layers.kernels.cpu.regions import means_by_position

        p, (height, width) = self.param.psroi_pooling_param, bottom[0].shape[2:]
        self._items, corners = read_regions(bottom)
        x1, y1, x2, y2 = corners.T
        self._bins = (*exact_bins(y1, y2, p.spatial_scale, p.group_size, height),
                      *exact_bins(x1, x2, p.spatial_scale, p.group_size, width))
        means_by_position(bottom[0].data_storage, self._items, *self._bins, top[0].data_storage)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Share each bin's gradient among its elements; the regions' is 0."""
        from scaffe.layers.kernels.cpu.regions import means_by_position_back

        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted:
                blob.diff_flat[...] = 0
        if propagate_down[0]:
            means_by_position_back(top[0].diff_storage, self._items, *self._bins, bottom[0].diff_storage)
