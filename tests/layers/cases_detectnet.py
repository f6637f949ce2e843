"""Cases of DetectNet's layer."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

BOXES = np.zeros((2, 1, 3, 16))
BOXES[:, 0, 0, :2] = [[2, 16], [1, 16]]
BOXES[0, 0, 1, :6] = [3, 2, 7, 5, 0, 1]
BOXES[0, 0, 2, :6] = [0, 0, 4, 4, 0, 2]
BOXES[1, 0, 1, :6] = [9, 3, 20, 9, 0, 2]
GRID = ("stride: 4 image_size_x: 16 image_size_y: 12 scale_cvg: 0.6 object_class { src: 1 dst: 0 } "
        "object_class { src: 2 dst: 1 }")

CASES: dict[str, list[Case]] = {
    "DetectNetTransformation": [
        Case(f'type: "DetectNetTransformation" detectnet_groundtruth_param {{ {GRID} {options} }} '
             "transform_param { mean_value: 127 }", (spread((2, 3, 9, 13), 0, 255), BOXES), phase=1, label=options)
        for options in ("", "gridbox_type: GRIDBOX_MIN min_cvg_len: 5 obj_norm: true crop_bboxes: false")],
}

NO_GRADIENT: dict[str, str] = {"DetectNetTransformation": "changes images of data"}
