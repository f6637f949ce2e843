"""Cases of YOLO's layers."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

TRUTH = np.zeros((2, 1, 3, 5))  # two objects in the first item, in one cell; one in the second
TRUTH[0, 0, :2] = [[1, 0.3, 0.6, 0.4, 0.2], [0, 0.35, 0.55, 0.1, 0.5]]
TRUTH[1, 0, 0] = [2, 0.9, 0.1, 0.15, 0.2]
V2, V3 = spread((2, 2 * 8, 3, 3), -2, 2), spread((2, 2 * 8, 2, 3), -2, 2)
ANCHORS = "biases: 1 biases: 0.6 biases: 0.5 biases: 2"
V3_OPTIONS = "num_class: 3 num: 2 anchors_scale: 8 biases: 3 biases: 4 biases: 9 biases: 3 biases: 8 biases: 8"
OUT = "confidence_threshold: 0.3 nms_threshold: 0.4"

CASES: dict[str, list[Case]] = {
    "Reorg": [
        Case('type: "Reorg" reorg_param { stride: 2 }', ((2, 8, 2, 4),)),
        Case('type: "Reorg" reorg_param { stride: 2 reverse: true }', ((1, 8, 3, 1),)),
    ],
    "RegionLoss": [
        Case(f'type: "RegionLoss" region_loss_param {{ num_class: 3 num: 2 {ANCHORS} {options} }}', (V2, TRUTH),
             gradient=(0,), batch=False, label=options) for options in ("", "rescore: 0 bias_match: 0 thresh: 0.1")],
    "Yolov3": [
        Case(f'type: "Yolov3" yolov3_param {{ {V3_OPTIONS} mask: 2 mask: 0 {options} }}', (V3, TRUTH), gradient=(0,),
             batch=False, label=options)
        for options in ("", "use_logic_gradient: true object_scale: 3", "use_focal_loss: true iou_loss: IOU",
                        "iou_loss: GIOU accumulate: false", "iou_loss: DIOU", "iou_loss: CIOU max_delta: 0.1")],
    "YoloDetectionOutput": [
        Case(f'type: "YoloDetectionOutput" yolo_detection_output_param {{ num_classes: 3 num_box: 2 {ANCHORS} {OUT} }}',
             (V2, V2[:, :, :2, :2]), batch=False)],
    "Yolov3DetectionOutput": [
        Case(f'type: "Yolov3DetectionOutput" yolov3_detection_output_param {{ num_classes: 3 num_box: 2 {OUT} '
             "biases: 3 biases: 4 biases: 9 biases: 3 anchors_scale: 8 anchors_scale: 4 "
             "mask: 1 mask: 0 mask: 0 mask: 1 }",
             (V3, V3[:, :, :, :1]), batch=False)],
}

NO_GRADIENT: dict[str, str] = {
    **dict.fromkeys(("RegionLoss", "Yolov3"), "not the derivative of the top, as in darknet: tests/layers/yolo"),
    **dict.fromkeys(("YoloDetectionOutput", "Yolov3DetectionOutput"), "chooses boxes"),
}
