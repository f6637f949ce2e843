"""Layers that choose or move regions: DecodeBBox (Cascade R-CNN), BoxGroupOutput (MS-CNN), ScaleRoute (feature
pyramids)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_n_axes
from scaffe.layers.base.bases import ZeroGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TRAIN, layer_types
from scaffe.layers.detection.anchors import all_anchors, moved_within, spread_of_boxes


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
        self._mean, self._deviation = spread_of_boxes(self.param.bbox_reg_param)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
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


NO_BOX = (1, 1, 10, 10, 0)  # what stands where there is none: its corners and score
KINDS = ("IOU", "IOMU", "IOFU")  # shared area over that of both, of the smaller one, of the better one


@layer_types.register("BoxGroupOutput")
class BoxGroupOutput(ZeroGradient):
    """Regions with the best scores that do not overlap much.

    Bottoms, in pairs, one a feature map with F fields: probabilities (N F, classes, H, W), background's first; box
    predictions (N F, 4, H, W). Tops: regions (R, 5, 1, 1), each (item, x1, y1, x2, y2); optionally with the score too,
    (R, 6, 1, 1). With no region at all there is one of 10 x 10 pixels.

    A field is a box of field_w x field_h pixels around the middle of each cell of stride x stride pixels. Predictions
    are bounded: shifts to 1 / field_xyr of the field, sizes to factors of field_whr. Regions of a probability of
    fg_thr or more are cut to the image; those with a side below min_size are left out. Of the max_nms_num best ones
    (0: all) those stay that overlap no better one by more than iou_thr, at most max_post_nms_num an item.
    """

    n_bottoms = (2, None)
    n_tops = (1, 2)
    host_only = True
    reshape_always = True
    temporaries = 6

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.box_group_output_param
        if len(bottom) != 2 * len(p.box_group_param):
            raise LayerError(f"wants two bottoms for each box_group_param, got {len(bottom)} for "
                             f"{len(p.box_group_param)}")
        if p.nms_type not in KINDS:
            raise LayerError(f"wants nms_type one of {', '.join(KINDS)}, got {p.nms_type!r}")
        if not (p.field_xyr > 0 and p.field_whr >= 1):
            raise LayerError(f"wants field_xyr above 0 and field_whr of at least 1, got {p.field_xyr:g} and "
                             f"{p.field_whr:g}")
        self._fields = [_fields(group) for group in p.box_group_param]
        self._mean, self._deviation = spread_of_boxes(self.param.bbox_reg_param)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        check_n_axes(1, *bottom)
        self._n_items = bottom[0].shape[0] // len(self._fields[0])
        for scores, boxes, fields in zip(bottom[::2], bottom[1::2], self._fields, strict=True):
            n_boxes = self._n_items * len(fields)
            wrong = scores.ndim != 4 or not scores.n_elems or scores.shape[0] != n_boxes
            if wrong or boxes.shape != (n_boxes, 4, *scores.shape[2:]):
                raise LayerError(f"wants probabilities ({n_boxes}, classes, H, W) and boxes ({n_boxes}, 4, H, W), got "
                                 f"{scores.shape} and {boxes.shape}")
        self._show(top, 1)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        found = []
        for item in range(self._n_items):
            boxes = self._chosen(self._candidates(bottom, item))
            found.append(np.concatenate([np.full((len(boxes), 1), item), boxes], axis=1))
        rows = np.concatenate(found)
        scored = rows if len(rows) else np.zeros((1, 6))
        rows = rows if len(rows) else np.array([[0, *NO_BOX]])
        self._show(top, len(rows))
        top[0].data[...] = rows[:, :5].reshape(top[0].shape)
        if len(top) > 1:
            top[1].data[...] = scored.reshape(top[1].shape)

    def _candidates(self, bottom: Sequence[Blob], item: int) -> np.ndarray:
        """Boxes and scores (n, 5) of one item, in the order of maps, fields, rows and columns."""
        p, found = self.param.box_group_output_param, []
        for i, (group, fields) in enumerate(zip(p.box_group_param, self._fields, strict=True)):
            mine = slice(item * len(fields), (item + 1) * len(fields))
            scores, deltas = 1 - bottom[2 * i].data[mine, 0], np.moveaxis(bottom[2 * i + 1].data[mine], 1, -1)
            boxes = self._decoded(fields, deltas, group.stride)
            height, width = scores.shape[1:]
            limits = np.array([width, height], boxes.dtype) * boxes.dtype.type(group.stride)
            boxes[..., :2] = np.maximum(boxes[..., :2], 0)
            boxes[..., 2:] = np.minimum(boxes[..., 2:], limits)
            large = (boxes[..., 2:] - boxes[..., :2] + 1 >= p.min_size).all(axis=-1)
            stay = large & (scores >= scores.dtype.type(p.fg_thr))
            found.append(np.concatenate([boxes[stay], scores[stay, None]], axis=1))
        return np.concatenate(found)

    def _decoded(self, fields: np.ndarray, deltas: np.ndarray, stride: int) -> np.ndarray:
        """The boxes (F, H, W, 4) that predictions of that shape mean."""
        p, (height, width) = self.param.box_group_output_param, deltas.shape[1:3]
        bounds = np.array([1 / p.field_xyr] * 2 + [np.log(p.field_whr)] * 2)
        deltas = np.clip(deltas * self._deviation + self._mean, -bounds, bounds)
        anchors = np.moveaxis(all_anchors(fields + stride / 2, height, width, stride), 2, 0)
        return moved_within(anchors, deltas).astype(deltas.dtype)

    def _chosen(self, boxes: np.ndarray) -> np.ndarray:
        """The best of an item's boxes (n, 5) that overlap no better one by more than the threshold."""
        p = self.param.box_group_output_param
        boxes = boxes[np.argsort(-boxes[:, 4], kind="stable")[:p.max_nms_num or None]]
        stay = np.ones(len(boxes), bool)
        for i in range(len(boxes)):
            if stay[i]:
                later = slice(i + 1, None)
                stay[later] &= overlaps(boxes[i], boxes[later], p.nms_type) <= p.iou_thr
        return boxes[stay][:p.max_post_nms_num or None]

    @staticmethod
    def _show(top: Sequence[Blob], n_regions: int) -> None:
        for blob, width in zip(top, (5, 6), strict=False):
            blob.reshape((n_regions, width, 1, 1))


def overlaps(box: np.ndarray, others: np.ndarray, kind: str) -> np.ndarray:
    """The overlap of a box with each of some others, (n,); boxes are x1, y1, x2, y2 and what follows."""
    sides = np.minimum(box[2:4], others[:, 2:4]) - np.maximum(box[:2], others[:, :2])
    apart = (sides[:, 0] < 0) | (sides[:, 1] <= 0)  # a shared row of one pixel counts as none, as in the fork
    shared = np.where(apart, 0, (sides + 1).prod(axis=1))
    own, theirs = (box[2:4] - box[:2] + 1).prod(), (others[:, 2:4] - others[:, :2] + 1).prod(axis=1)
    areas = {"IOU": own + theirs - shared, "IOMU": np.minimum(own, theirs), "IOFU": own}
    ratio: np.ndarray = shared / areas[kind]
    return ratio


def _fields(group: Any) -> np.ndarray:
    """The fields of a BoxGroupParameter around 0, (F, 4): x1, y1, x2, y2."""
    if len(group.field_w) != len(group.field_h) or not group.field_w or group.stride < 1:
        raise LayerError(f"wants a stride above 0 and as many field_w as field_h, got {group.stride}, "
                         f"{len(group.field_w)} and {len(group.field_h)}")
    half = np.array([group.field_w, group.field_h]).T / 2
    return np.concatenate([-half, half - 1], axis=1)


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
    temporaries, persistent_temporaries = 3, 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.scale_route_param
        self._low = p.low_scale if p.HasField("low_scale") else 0.0
        self._high = p.high_scale if p.HasField("high_scale") else np.inf
        if not 0 <= self._low <= self._high or p.HasField("low_scale") and not self._low:
            raise LayerError(f"wants scales above 0, the low one first, got {self._low:g} and {self._high:g}")
        ends = [end for end in (self._low, self._high) if 0 < end < np.inf]
        self._middle = float(np.prod(ends) ** (1 / len(ends))) if ends else MIDDLE

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        check_n_axes(1, *bottom)
        n_regions = bottom[0].shape[0]
        if bottom[0].count(1) != 5 or not n_regions or any(blob.shape[0] != n_regions for blob in bottom):
            raise LayerError(f"wants regions (R, 5), and R rows in each bottom, got {[b.shape for b in bottom]}")
        self._show(bottom, top, 1)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
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
