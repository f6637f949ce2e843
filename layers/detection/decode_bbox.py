"""DecodeBBox: regions moved by what one stage of a cascade predicts (Cascade R-CNN, Cai and Vasconcelos 2018).

Formula: zhaoweicai/cascade-rcnn, decode_bbox_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_n_axes
from scaffe.layers.base.layer import TRAIN, layer_types
from scaffe.layers.detection.anchors import moved_within, spread_of_boxes
from scaffe.layers.detection.zero_gradient import ZeroGradient


@layer_types.register("DecodeBBox")
class DecodeBBox(ZeroGradient):
    """The regions that the predictions for objects give, the same for all classes.

    In training, regions without an area are left out, and with a third bottom those that overlap their true box by
    gt_iou_thr or more.

    Bottoms: predictions (R, 8), those of objects last; regions (R, 5), each (item, x1, y1, x2, y2); in training
    optionally true boxes (R, n), whose last number is the overlap. Top: regions (R', 5, ...).
    """

    n_bottoms = (2, 3)
    host_only = True
    reshape_always = True
    exact_bottoms = (1,)
    temporaries = 3

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read means and deviations. Raises LayerError unless they are 4 or none."""
        self._mean, self._deviation = spread_of_boxes(self.param.bbox_reg_param)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top for all regions. Raises LayerError if bottoms do not fit, or there is a third in testing."""
        check_n_axes(1, *bottom)
        n_regions = bottom[1].shape[0]
        wrong = bottom[0].count(1) != 8 or bottom[1].count(1) != 5 or not n_regions
        if wrong or any(blob.shape[0] != n_regions for blob in bottom):
            raise LayerError(f"wants predictions (R, 8) and regions (R, 5), got {[blob.shape for blob in bottom]}")
        if len(bottom) > 2 and not bottom[2].n_elems:
            raise LayerError(f"wants true boxes with an overlap each, got shape {bottom[2].shape}")
        if len(bottom) > 2 and self.context.phase != TRAIN:
            raise LayerError("takes a third bottom in training only")
        top[0].reshape(bottom[1].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Move the regions. Raises LayerError if none stays."""
        regions = bottom[1].data.reshape(-1, 5)
        deltas = bottom[0].data.reshape(-1, 8)[:, 4:] * self._deviation + self._mean
        boxes = moved_within(regions[:, 1:], deltas)
        stay = np.ones(len(boxes), bool)
        if self.context.phase == TRAIN:
            stay &= np.all(boxes[:, :2] <= boxes[:, 2:], axis=1)
        if len(bottom) > 2:
            overlaps = bottom[2].data.reshape(len(boxes), -1)[:, -1]
            stay &= overlaps < np.float32(self.param.decode_bbox_param.gt_iou_thr)
        if not stay.any():
            raise LayerError(f"none of {len(boxes)} regions stays: each is without an area, or a true box")
        top[0].reshape((int(stay.sum()), *bottom[1].shape[1:]))
        top[0].data[...] = np.concatenate([regions[stay, :1], boxes[stay]], axis=1).reshape(top[0].shape)
