"""Gradient cases of the R-CNN family's layers."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

PAIR = spread((3, 4), -2, 2, seed=1), spread((3, 4), -2, 2, seed=2)
MAPS = spread((2, 3, 2, 2), -2, 2, seed=1), spread((2, 3, 2, 2), -2, 2, seed=2)
WEIGHTS = spread((3, 4), 0.1, 2, seed=3), spread((3, 4), 0.1, 2, seed=4)
MAP_WEIGHTS = spread((2, 3, 2, 2), 0.1, 2, seed=3)
REGIONS = np.array([[0, 0, 0, 3, 3], [1, 2, 1, 7, 4], [0, 6, 6, 6, 6], [1, 20, 20, 30, 30], [0, 5, 5, 1, 2.0]])
SCORES = spread((2, 3, 2, 2), -2, 2)
LABELS = np.array([0, 2, 1, -1, 2, 0, 1, 1.0]).reshape(2, 1, 2, 2)
IGNORE = "loss_param { ignore_label: -1 normalization: "
MODES = ["normalization: FULL", "normalization: VALID", "normalization: BATCH_SIZE", "normalization: NONE",
         "normalization: PRE_FIXED pre_fixed_normalizer: 5", "normalize: true", "normalize: false"]
RPN = "proposal_param { ratio: 1 ratio: 2 scale: 1 base_size: 4 feat_stride: 2 min_size: 1 "


def smooth_l1(name: str) -> list[Case]:
    """Each normalization, on maps with weights."""
    return [Case(f'type: "{name}" loss_param {{ {mode} }}', (*MAPS, MAP_WEIGHTS), gradient=(0, 1), tops=(0,),
                 label=mode) for mode in MODES]


CASES: dict[str, list[Case]] = {
    "SmoothL1Loss": [
        Case('type: "SmoothL1Loss"', PAIR),
        Case('type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 3 }', (*PAIR, *WEIGHTS), gradient=(0, 1), label="all"),
        Case('type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 0.5 }', (*MAPS, MAP_WEIGHTS), gradient=(0, 1),
             label="inside"),
        Case('type: "SmoothL1Loss"', (spread((2, 3, 1, 1), -2, 2), spread((2, 3), -2, 2, seed=3)), label="shapes"),
        *smooth_l1("SmoothL1Loss"),
    ],
    "SmoothL1LossOHEM": [
        Case('type: "SmoothL1LossOHEM"', (*PAIR, WEIGHTS[0]), gradient=(0, 1), tops=(0,), n_tops=2),
        Case('type: "SmoothL1LossOHEM" smooth_l1_loss_param { sigma: 2 }', MAPS, tops=(0,), n_tops=2, label="sigma"),
        *smooth_l1("SmoothL1LossOHEM"),
    ],
    "SoftmaxWithLossOHEM": [
        Case('type: "SoftmaxWithLossOHEM" loss_param { ignore_label: -1 }', (SCORES, LABELS), gradient=(0,), tops=(0,),
             n_tops=3),
        *[Case(f'type: "SoftmaxWithLossOHEM" loss_param {{ ignore_label: -1 {mode} }}', (SCORES, LABELS), gradient=(0,),
               tops=(0,), label=mode) for mode in MODES],
        Case('type: "SoftmaxWithLossOHEM" softmax_param { axis: -1 }',
             (spread((2, 2, 3), -2, 2), np.array([[0, 1], [2, 2.0]])), gradient=(0,), tops=(0,), label="axis"),
    ],
    "ROIPooling": [
        Case('type: "ROIPooling" roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.5 pad_ratio: 0.25 }',
             ((2, 2, 4, 4), REGIONS), gradient=(0,), batch=False, label="padded"),
    ],
    "PSROIPooling": [
        Case('type: "PSROIPooling" psroi_pooling_param { output_dim: 2 group_size: 2 spatial_scale: 0.5 }',
             ((2, 8, 4, 5), REGIONS), gradient=(0,), batch=False),
    ],
    "ROIAlign": [
        *[Case(f'type: "ROIAlign" roi_align_param {{ pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 {ratio} }}',
               ((2, 2, 4, 4), REGIONS), gradient=(0,), batch=False, label=ratio)
          for ratio in ("", "sampling_ratio: 2")],
        Case('type: "ROIAlign" roi_pooling_param { pooled_h: 2 pooled_w: 1 spatial_scale: 0.5 pad_ratio: 0.2 }',
             ((2, 2, 4, 4), REGIONS), gradient=(0,), batch=False, label="corners"),
    ],
    "BoxAnnotatorOHEM": [
        Case('type: "BoxAnnotatorOHEM" box_annotator_ohem_param { roi_per_img: 2 }',
             (REGIONS, spread((5, 1)), np.array([1, 2, 0, 1, 3.0]).reshape(5, 1), (5, 8))),
    ],
    "Proposal": [
        Case(f'type: "Proposal" {RPN} pre_nms_topn: 20 post_nms_topn: 7 nms_thresh: 0.6 }}',
             (spread((1, 4, 3, 5), 0.1, 1), spread((1, 8, 3, 5), -0.5, 0.5), np.array([[6, 10, 1.5]])), n_tops=2,
             batch=False),
    ],
}

NO_GRADIENT: dict[str, str] = {
    "BoxAnnotatorOHEM": "chooses: its gradient is 0",
    "Proposal": "chooses: its gradient is 0",
}
