"""Gradient cases of layers from forks of Caffe."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

IMAGE = (2, 3, 2, 2)
MASK = np.array([[0, 3], [9, 15], [5, 6], [8, 11.0]]).reshape(1, 2, 2, 2)
REGIONS = np.array([[0, 0, 0, 3, 3], [1, 2, 1, 7, 4], [0, 6, 6, 6, 6], [1, 20, 20, 30, 30.0]])

DEPTHWISE = 'convolution_param { kernel_size: 2 pad: 1 weight_filler { type: "xavier" } }'

CASES: dict[str, list[Case]] = {
    "Permute": [
        Case('type: "Permute" permute_param { order: 0 order: 2 order: 3 order: 1 }', (IMAGE,)),
        Case('type: "Permute" permute_param { order: 2 }', ((2, 3, 4),), batch=False),
    ],
    "ShuffleChannel": [Case('type: "ShuffleChannel" shuffle_channel_param { group: 2 }', ((2, 6, 1, 2),))],
    "Normalize": [
        Case(f'type: "Normalize" norm_param {{ {options} eps: 0.01 }}', (IMAGE,), label=options)
        for options in ("", "across_spatial: false", 'channel_shared: false scale_filler { type: "uniform" }',
                        'across_spatial: false channel_shared: false scale_filler { type: "uniform" }')],
    "Interp": [
        Case('type: "Interp" interp_param { height: 5 width: 3 }', ((1, 2, 3, 4),)),
        Case('type: "Interp" interp_param { zoom_factor: 2 pad_beg: -1 pad_end: -1 }', ((1, 2, 4, 5),), label="zoom"),
        Case('type: "Interp" interp_param { shrink_factor: 2 }', ((2, 1, 5, 4),), label="shrink"),
        Case('type: "Interp"', ((1, 2, 3, 3), (1, 1, 1, 4)), label="like"),
    ],
    "Upsample": [
        Case('type: "Upsample"', ((1, 2, 2, 2), MASK), gradient=(0,)),
        Case('type: "Upsample" upsample_param { upsample_h: 5 upsample_w: 4 }', ((1, 2, 2, 2), MASK), gradient=(0,)),
    ],
    "ReLU6": [
        Case('type: "ReLU6"', (spread(IMAGE, -3, 9),)),
        Case('type: "ReLU6" relu6_param { negative_slope: 0.1 }', (spread((2, 5), -3, 9),), in_place=True),
    ],
    "ROIPooling": [
        Case('type: "ROIPooling" roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 }',
             ((2, 2, 4, 4), REGIONS), gradient=(0,), batch=False),
    ],
    "DepthwiseConvolution": [Case(f'type: "DepthwiseConvolution" {DEPTHWISE}', ((2, 2, 3, 2),))],
    "ConvolutionDepthwise": [Case(f'type: "ConvolutionDepthwise" {DEPTHWISE}', ((1, 2, 2, 3),))],
    "Axpy": [
        Case('type: "Axpy"', ((2, 3, 1, 1), spread(IMAGE, seed=1), spread(IMAGE, seed=2))),
        Case('type: "Axpy"', ((2, 3), spread((2, 3, 4), seed=1), spread((2, 3, 4), seed=2))),
    ],
}

NO_GRADIENT: dict[str, str] = {}
