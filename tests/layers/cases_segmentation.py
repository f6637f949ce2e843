"""Gradient cases of the segmentation forks' layers."""

from __future__ import annotations

from tests.layers.gradient_check import Case, spread

IMAGE = (3, 2, 2, 3)
FILLERS = 'scale_filler { type: "uniform" min: 1 max: 2 } shift_filler { type: "uniform" }'
AVERAGED = 'slope_filler { type: "uniform" min: 1 max: 2 } bias_filler { type: "uniform" }'

CASES: dict[str, list[Case]] = {
    "BN": [
        Case(f'type: "BN" bn_param {{ {FILLERS} }}', (IMAGE,), label="SegNet"),
        Case(f'type: "BN" bn_param {{ {FILLERS} }}', (IMAGE,), n_tops=3, tops=(0,), label="SegNet, statistics shown"),
        Case(f'type: "BN" bn_param {{ {FILLERS} bn_mode: INFERENCE }}', (IMAGE,), in_place=True, label="SegNet"),
        Case(f'type: "BN" bn_param {{ {AVERAGED} momentum: 0.5 eps: 0.1 }}', (IMAGE,), params=(0, 1), label="PSPNet"),
        Case(f'type: "BN" bn_param {{ {AVERAGED} }}', ((4, 3),), params=(0, 1), in_place=True, label="PSPNet"),
        Case(f'type: "BN" bn_param {{ {AVERAGED} frozen: true }}', (IMAGE,), params=(), label="PSPNet"),
        Case(f'type: "BN" bn_param {{ {AVERAGED} }}', (IMAGE,), params=(0, 1), phase=1, label="PSPNet, testing"),
    ],
    "L1Loss": [
        Case('type: "L1Loss"', (spread((4, 3), seed=1), spread((4, 3), 2, 3, seed=2))),
        Case('type: "L1Loss" loss_weight: 0.5', ((2, 3, 1, 2), (2, 6)), batch=False),
    ],
}

NO_GRADIENT: dict[str, str] = {
    "SegAccuracy": "counts pixels",
    **dict.fromkeys(("DenseImageData", "ImageSegData", "VideoData"), "a source of data"),
}
