"""Gradient cases of SSD's layers: boxes and scores that no small step matches or mines otherwise."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

N, P, CLASSES = 2, 6, 3
GRID = np.array([[0.1 * i, 0.15 * (i % 3), 0.1 * i + 0.3, 0.15 * (i % 3) + 0.35] for i in range(P)])
CROSSING = np.array([[-0.1, 0.1, 0.3, 0.4], *GRID[1:]])
VARIANCES = np.tile([0.1, 0.1, 0.2, 0.2], (P, 1))
TRUTH = np.array([[0, 1, 0, 0.02, 0.01, 0.33, 0.37, 0], [0, 2, 0, 0.41, 0.17, 0.72, 0.49, 1],
                  [1, 2, 0, 0.29, 0.02, 0.63, 0.36, 0]]).reshape(1, 1, 3, 8)


def priors(boxes: np.ndarray = GRID) -> np.ndarray:
    """A blob of prior boxes (1, 2, 4 P)."""
    return np.stack([boxes.ravel(), VARIANCES[: len(boxes)].ravel()])[None]


def loss_case(options: str, boxes: np.ndarray = GRID, n_locations: int = 1, more: str = "", n_classes: int = CLASSES,
              truth: np.ndarray = TRUTH) -> Case:
    """A MultiBoxLoss on two images of two objects and one."""
    text = f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: {n_classes} {options} }} {more}'
    offsets = spread((N, P * 4 * n_locations), -0.3, 0.3, seed=1)
    scores = spread((N, P * n_classes), -1, 1, seed=2)
    return Case(text, (offsets, scores, priors(boxes), truth), gradient=(0, 1), batch=False, label=f"{options} {more}")


NO_MINING = "mining_type: NONE"
APART = "share_location: false mining_type: NONE"
AGNOSTIC = TRUTH.copy()
AGNOSTIC[..., 1] += 5
LOSSES = [
    loss_case(""), loss_case("code_type: CENTER_SIZE loc_weight: 2"),
    loss_case("code_type: CORNER_SIZE", more="loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 7 }"),
    loss_case("loc_loss_type: L2 conf_loss_type: LOGISTIC"), loss_case(f"conf_loss_type: LOGISTIC {NO_MINING}"),
    loss_case(f"{NO_MINING} match_type: BIPARTITE use_difficult_gt: false"),
    loss_case("overlap_threshold: 0.3 neg_pos_ratio: 1 neg_overlap: 0.4 do_neg_mining: true"),
    loss_case("background_label_id: 0 ignore_cross_boundary_bbox: true bp_inside: true", CROSSING),
    loss_case("bp_inside: true", CROSSING, more="loss_param { normalization: FULL }"),
    loss_case("mining_type: HARD_EXAMPLE sample_size: 3", more="loss_param { normalization: BATCH_SIZE }"),
    loss_case("nms_param { nms_threshold: 0.6 top_k: 4 }", more="loss_param { normalization: NONE }"),
    loss_case("nms_param { nms_threshold: 0.6 top_k: 4 } use_prior_for_nms: true",
              more="loss_param { normalize: false }"),
    loss_case("use_prior_for_matching: false code_type: CENTER_SIZE", more="loss_param { normalize: true }"),
    loss_case(APART, n_locations=CLASSES), loss_case(f"{APART} do_neg_mining: false", n_locations=CLASSES),
    loss_case("map_object_to_agnostic: true", n_classes=2, truth=AGNOSTIC),
]

CLUSTERED = "width: 4.5 height: 6 width: 9 height: 3.25"
SIZES = "min_size: 4 max_size: 9 aspect_ratio: 2 aspect_ratio: 0.5"
DETECTION_INPUTS = (spread((N, P * 4), -0.5, 0.5, seed=3), spread((N, P * CLASSES), 0, 1, seed=4), priors())
APART_INPUTS = (spread((N, P * 4 * CLASSES), -0.5, 0.5, seed=5), *DETECTION_INPUTS[1:])
FOUND = np.array([[0, 1, 0.9, 0, 0, 0.3, 0.4], [0, 1, 0.8, 0.01, 0, 0.3, 0.4], [0, 2, 0.7, 0.4, 0.2, 0.7, 0.5],
                  [1, 1, 0.6, 0, 0, 1, 1], [1, 2, 0.5, 0.3, 0, 0.6, 0.4], [1, -1, -1, -1, -1, -1, -1]])

CASES: dict[str, list[Case]] = {
    "PriorBox": [
        Case(f'type: "PriorBox" prior_box_param {{ {options} }}', ((1, 2, 3, 2), (1, 3, 25, 19)), batch=False,
             label=options)
        for options in (SIZES, f"{SIZES} flip: false clip: true variance: 0.2 offset: 0",
                        "min_size: 3.5 min_size: 5 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2",
                        f"{SIZES} img_size: 30 step: 7", f"{SIZES} img_h: 30 img_w: 20 step_h: 6 step_w: 5")],
    "PriorBoxClustered": [
        Case(f'type: "PriorBoxClustered" prior_box_param {{ {CLUSTERED} {options} }}', ((1, 2, 3, 2), (1, 3, 25, 19)),
             batch=False, label=options)
        for options in ("", "clip: true variance: 0.2 offset: 0", "img_size: 30 step: 7",
                        "img_h: 30 img_w: 20 step_h: 6 step_w: 5")],
    "MultiBoxLoss": LOSSES,
    "DetectionOutput": [
        Case(f'type: "DetectionOutput" detection_output_param {{ num_classes: {CLASSES} {options} }}', inputs,
             batch=False, label=options)
        for options, inputs in (
            ("", DETECTION_INPUTS), ("code_type: CENTER_SIZE nms_param { nms_threshold: 0.45 top_k: 4 }",
                                     DETECTION_INPUTS),
            ("code_type: CORNER_SIZE keep_top_k: 3 variance_encoded_in_target: true", DETECTION_INPUTS),
            ("confidence_threshold: 0.5 nms_param { nms_threshold: 0.8 eta: 0.6 }", DETECTION_INPUTS),
            ("confidence_threshold: 2", DETECTION_INPUTS), ("share_location: false background_label_id: 1",
                                                            APART_INPUTS))],
    "DetectionEvaluate": [
        Case(f'type: "DetectionEvaluate" detection_evaluate_param {{ num_classes: {CLASSES} {options} }}',
             (FOUND.reshape(1, 1, -1, 7), TRUTH), batch=False, label=options)
        for options in ("", "evaluate_difficult_gt: false overlap_threshold: 0.3")],
}

NO_GRADIENT = {
    "PriorBox": "depends on shapes alone", "PriorBoxClustered": "depends on shapes alone",
    "DetectionOutput": "chooses boxes", "DetectionEvaluate": "counts boxes",
    "AnnotatedData": "reads a database: tests/data/test_annotated.py",
}
