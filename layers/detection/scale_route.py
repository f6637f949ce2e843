"""ScaleRoute: regions of some sizes only, for one level of a feature pyramid.

Formula: zhaoweicai/cascade-rcnn, scale_route_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_n_axes
from scaffe.layers.base.layer import layer_types
from scaffe.layers.detection.zero_gradient import ZeroGradient

MIDDLE = 256.0  # pixels, where neither end of the range is given


@layer_types.register("ScaleRoute")
class ScaleRoute(ZeroGradient):
    """The regions whose scale is at least low_scale and below high_scale, and the same rows of the other bottoms.

    A region's scale is the root of its area in pixels. With no region in the range, the one nearest to its (geometric)
    middle is taken.

    Bottoms: regions (R, 5), each (item, x1, y1, x2, y2); any others (R, ...). Tops: as the bottoms, with fewer rows.
    """

    n_bottoms = (1, None)
    n_tops = (1, None)
    equal_counts = True
    host_only = True
    reshape_always = True
    exact_bottoms = (0,)
    temporaries, lasting = 3, 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the range. Raises LayerError for an empty one."""
        p = self.param.scale_route_param
        self._low = p.low_scale if p.HasField("low_scale") else 0.0
        self._high = p.high_scale if p.HasField("high_scale") else np.inf
        if not 0 <= self._low <= self._high or p.HasField("low_scale") and not self._low:
            raise LayerError(f"wants scales above 0, the low one first, got {self._low:g} and {self._high:g}")
        ends = [end for end in (self._low, self._high) if 0 < end < np.inf]
        self._middle = float(np.prod(ends) ** (1 / len(ends))) if ends else MIDDLE

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops for one row. Raises LayerError unless each bottom has a row for each region."""
        check_n_axes(1, *bottom)
        n_regions = bottom[0].shape[0]
        if bottom[0].count(1) != 5 or not n_regions or any(blob.shape[0] != n_regions for blob in bottom):
            raise LayerError(f"wants regions (R, 5), and R rows in each bottom, got {[b.shape for b in bottom]}")
        self._show(bottom, top, 1)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Choose the rows, and shape the tops for as many."""
        corners = bottom[0].data.reshape(-1, 5)[:, 1:].astype(np.float64)
        sides = corners[:, 2:] - corners[:, :2]
        scales = np.sqrt(np.where((sides < 0).any(axis=1), 0, (sides + 1).prod(axis=1)))
        chosen = np.flatnonzero((scales >= self._low) & (scales < self._high))
        if not len(chosen):
            with np.errstate(divide="ignore"):  # a region without an area is infinitely far
                chosen = np.argmin(np.abs(np.log2(scales / self._middle)), keepdims=True)
        self._show(bottom, top, len(chosen))
        for given, taken in zip(bottom, top, strict=True):
            taken.data[...] = given.data[chosen]

    @staticmethod
    def _show(bottom: Sequence[Blob], top: Sequence[Blob], n_rows: int) -> None:
        for given, taken in zip(bottom, top, strict=True):
            taken.reshape((n_rows, *given.shape[1:]))
