"""Gradient cases of layers from forks of Caffe."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

IMAGE = (2, 3, 2, 2)
MASK = np.array([[0, 3], [9, 15], [5, 6], [8, 11.0]]).reshape(1, 2, 2, 2)
REGIONS = np.array([[0, 0, 0, 3, 3], [1, 2, 1, 7, 4], [0, 6, 6, 6, 6], [1, 20, 20, 30, 30.0]])

DEPTHWISE = [  # options, bottom
    ("kernel_size: 2 pad: 1", (2, 2, 3, 2)), ("num_output: 4 group: 1 kernel_size: 2 bias_term: false", (1, 2, 2, 3)),
    ("kernel_h: 2 kernel_w: 1 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1", (1, 2, 3, 2)),
    ("kernel_size: 2 stride: 2 dilation: 2 force_nd_im2col: true axis: 1", (1, 2, 5, 4))]


def depthwise(name: str) -> list[Case]:
    """A depthwise convolution under one of its names."""
    return [Case(f'type: "{name}" convolution_param {{ {options} weight_filler {{ type: "xavier" }} }}', (shape,),
                 label=options) for options, shape in DEPTHWISE]


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
        *[Case(f'type: "Upsample" upsample_param {{ {options} }}', ((1, 2, 2, 2), MASK), gradient=(0,), label=options)
          for options in ("upsample_h: 5 upsample_w: 4", "scale: 3", "scale_h: 2 scale_w: 4",
                          "scale_h: 5 scale_w: 2 pad_out_w: true", "scale_h: 2 scale_w: 5 pad_out_h: true")],
        Case('type: "Upsample" upsample_param { scale_h: 3 scale_w: 2 }', ((2, 2, 2, 1),), label="nearest"),
    ],
    "ReLU6": [
        Case('type: "ReLU6"', (spread(IMAGE, -3, 9),)),
        Case('type: "ReLU6" relu6_param { negative_slope: 0.1 }', (spread((2, 5), -3, 9),), in_place=True),
    ],
    "CenterLoss": [
        Case('type: "CenterLoss" loss_weight: 0.5 center_loss_param { num_output: 4 axis: 1 '
             'center_filler { type: "xavier" } }', ((3, 2, 1, 2), np.array([3, 0, 3.0])), gradient=(0,), params=()),
    ],
    "Insanity": [
        Case('type: "Insanity"', (IMAGE,)),
        Case('type: "Insanity" insanity_param { lb: -3 ub: 2 }', ((2, 5),), phase=1, in_place=True),
    ],
    "MergeCrop": [
        Case(f'type: "MergeCrop" mergecrop_param {{ {options} backward: [true, true] }}', ((2, 2, 2, 1), (2, 2, 4, 4)),
             label=options) for options in ("", "operation: ADD", "forward: [true, true]")] + [
        Case('type: "MergeCrop" mergecrop_param { forward: [true, false] backward: [true, false] }',
             ((1, 2, 2, 1), (1, 1, 3, 3)),
             gradient=(0,), label="one")],
    "MarginInnerProduct": [  # rows are scaled where they lie, and the gradients of margins are no derivatives
        Case(f'type: "MarginInnerProduct" margin_inner_product_param {{ num_output: 4 axis: 1 {options} '
             'weight_filler { type: "xavier" } }', ((3, 2, 1, 2), np.array([3, 0, 3.0])), gradient=gradient, params=(),
             label=options) for options, gradient in (
                 ("base: 2 gamma: 1 power: 2 iteration: 3 lambda_min: 0.1", (0,)), ("type: DOUBLE", ()),
                 ("type: TRIPLE", ()), ("type: QUADRUPLE", ()))],
    "SigmoidCrossEntropyBalanceLoss": [
        Case('type: "SigmoidCrossEntropyBalanceLoss"', ((2, 1, 2, 3), np.array(
            [[0, 1, 0, 0, 1, 0], [1, 1, 1, 0, 2, 0.0]]).reshape(2, 1, 2, 3)), gradient=(0,))],
    "BroadcastMul": [Case('type: "BroadcastMul"', (IMAGE, (2, 3, 1, 1))),
                     Case('type: "BroadcastMul"', ((2, 3), spread((2, 3, 4), seed=2)))],
    "MaskPooling": [Case('type: "MaskPooling"', (IMAGE, (2, 1, 2, 2)))],
    "ROIPooling": [
        Case('type: "ROIPooling" roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 }',
             ((2, 2, 4, 4), REGIONS), gradient=(0,), batch=False),
    ],
    "DepthwiseConvolution": depthwise("DepthwiseConvolution"),
    "ConvolutionDepthwise": depthwise("ConvolutionDepthwise"),
    "Axpy": [
        Case('type: "Axpy"', ((2, 3, 1, 1), spread(IMAGE, seed=1), spread(IMAGE, seed=2))),
        Case('type: "Axpy"', ((2, 3), spread((2, 3, 4), seed=1), spread((2, 3, 4), seed=2))),
    ],
}

NO_GRADIENT: dict[str, str] = {}
