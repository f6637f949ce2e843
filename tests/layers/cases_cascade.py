"""Gradient cases of Cascade R-CNN's layers, which choose."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

REGIONS = np.array([[0, 0, 0, 9, 9], [0, 3, 4, 7, 5], [1, 2, 2, 30, 40], [1, 5, 5, 1, 2.0]])
SPREAD = "bbox_reg_param { bbox_mean: 0 bbox_mean: 0.1 bbox_mean: 0 bbox_mean: 0 " \
    "bbox_std: 0.1 bbox_std: 0.1 bbox_std: 0.2 bbox_std: 0.2 cls_aware: false }"
OPTIONS = "fg_thr: 0.3 iou_thr: 0.4 min_size: 3 max_nms_num: 30 max_post_nms_num: 6 field_whr: 3 field_xyr: 1.5"
GROUPS = "box_group_param { field_w: 8 field_w: 5 field_h: 6 field_h: 10 stride: 4 } " \
    "box_group_param { field_w: 12 field_h: 12 stride: 8 }"
MAPS = (spread((4, 2, 3, 4), 0, 1, seed=1), spread((4, 4, 3, 4), -2, 2, seed=2),
        spread((2, 2, 2, 2), 0, 1, seed=3), spread((2, 4, 2, 2), -2, 2, seed=4))

CASES: dict[str, list[Case]] = {
    "ScaleRoute": [
        Case(f'type: "ScaleRoute" scale_route_param {{ {ends} }}', (REGIONS, (4, 3)), n_tops=2, batch=False, label=ends)
        for ends in ("low_scale: 5 high_scale: 20", "low_scale: 100")],
    "DecodeBBox": [
        Case(f'type: "DecodeBBox" {SPREAD} decode_bbox_param {{ gt_iou_thr: 0.7 }}',
             ((4, 8), REGIONS, np.array([[1, 2, 0.6], [1, 2, 0.8], [0, 0, 0.5], [0, 0, 0.1]])), batch=False),
        Case('type: "DecodeBBox"', ((4, 8), REGIONS), phase=1, batch=False, label="tested"),
    ],
    "BoxGroupOutput": [
        Case(f'type: "BoxGroupOutput" {SPREAD} box_group_output_param {{ {OPTIONS} nms_type: "{kind}" {GROUPS} }}',
             MAPS, n_tops=2, batch=False, label=kind) for kind in ("IOU", "IOMU", "IOFU")],
}

NO_GRADIENT = dict.fromkeys(CASES, "chooses regions: its gradient is 0")
