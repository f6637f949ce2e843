"""Gradient cases of activations, shape changes, sources, reductions and metrics."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

IMAGE = (2, 3, 2, 2)
MATRIX = (2, 5)


def neuron(layer_type: str, options: str = "", low: float = -1.0, high: float = 1.0) -> list[Case]:
    """A neuron layer on an image and in place on a matrix."""
    text = f'type: "{layer_type}" {options}'
    return [Case(text, (spread(IMAGE, low, high),), label=f"image {options}"),
            Case(text, (spread(MATRIX, low, high),), in_place=True, label=f"in place {options}")]


CASES: dict[str, list[Case]] = {
    "AbsVal": [Case('type: "AbsVal"', (IMAGE,))],
    "BNLL": neuron("BNLL", low=-3, high=3),
    "Clip": neuron("Clip", "clip_param { min: -0.41 max: 0.52 }"),
    "ELU": neuron("ELU", "elu_param { alpha: 0.7 }"),
    "Exp": neuron("Exp") + neuron("Exp", "exp_param { base: 2 scale: 0.5 shift: 0.7 }"),
    "Log": neuron("Log", low=0.5, high=2) + neuron("Log", "log_param { base: 10 scale: 2 shift: 3 }"),
    "PReLU": neuron("PReLU") + neuron("PReLU", "prelu_param { channel_shared: true }")
    + neuron("PReLU", 'prelu_param { filler { type: "uniform" min: -1 max: 1 } }'),
    "Power": neuron("Power", "power_param { power: 2.5 scale: 0.8 shift: 2 }")
    + neuron("Power", "power_param { power: 2 scale: -3 }") + neuron("Power", "power_param { scale: 2 shift: 1 }")
    + neuron("Power", "power_param { power: 0 shift: 3 }")
    + neuron("Power", "power_param { power: 3 scale: 0 shift: 2 }"),
    "Sigmoid": neuron("Sigmoid", low=-4, high=4),
    "Swish": neuron("Swish", low=-3, high=3) + neuron("Swish", "swish_param { beta: 1.7 }"),
    "TanH": neuron("TanH", low=-2, high=2),
    "Threshold": [Case('type: "Threshold" threshold_param { threshold: 0.2 }', (IMAGE,))],
    "Accuracy": [
        Case('type: "Accuracy"', (spread((4, 3)), np.array([0, 1, 2, 1.0]))),
        Case('type: "Accuracy" accuracy_param { top_k: 2 ignore_label: -1 }',
             (spread((2, 3, 2, 1)), np.array([0, -1, 2, 1.0]).reshape(2, 1, 2, 1)), n_tops=2),
    ],
    "Reshape": [
        Case('type: "Reshape" reshape_param { shape { dim: 0 dim: -1 } }', (IMAGE,), label="flatten"),
        Case('type: "Reshape" reshape_param { shape { dim: 0 dim: 1 dim: -1 dim: 2 } }', ((2, 6),), label="to image"),
        Case('type: "Reshape" reshape_param { shape { dim: 0 dim: 0 dim: 4 dim: 1 } }', (IMAGE,), label="spatial"),
        Case('type: "Reshape" reshape_param { shape { dim: 4 dim: 3 } axis: 1 num_axes: 2 }', ((2, 3, 4, 2),)),
        Case('type: "Reshape" reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }', ((2, 3, 2),), label="insert"),
    ],
    "Slice": [
        Case('type: "Slice"', ((2, 4, 2, 1),), n_tops=2),
        Case('type: "Slice" slice_param { axis: 0 slice_point: 1 }', ((4, 3),), n_tops=2, batch=False),
        Case('type: "Slice" slice_param { slice_dim: 2 slice_point: 1 slice_point: 3 }', ((2, 2, 4, 1),), n_tops=3),
        Case('type: "Slice"', ((2, 3),), n_tops=1, label="one top"),
    ],
    "Silence": [Case('type: "Silence"', (IMAGE, MATRIX))],
    "Input": [Case('type: "Input" input_param { shape { dim: 2 dim: 3 } }', n_tops=2)],
    "DummyData": [Case('type: "DummyData" dummy_data_param { shape { dim: 2 dim: 3 dim: 2 dim: 2 } }')],
    "Parameter": [
        Case('type: "Parameter" parameter_param { shape { dim: 2 dim: 3 } }'),
        Case('type: "Parameter" parameter_param { shape { dim: 2 dim: 3 dim: 2 dim: 2 } }', label="image"),
    ],
    "Reduction": [Case(f'type: "Reduction" reduction_param {{ operation: {op} axis: {axis} coeff: 0.7 }}', (IMAGE,),
                       batch=axis != 0, label=f"{op} {axis}")
                  for op in ("SUM", "ASUM", "SUMSQ", "MEAN") for axis in (0, 1, -2)],
    "Tile": [Case(f'type: "Tile" tile_param {{ axis: {axis} tiles: 3 }}', (IMAGE,), batch=axis != 0)
             for axis in (0, 1, -1)],
    "ArgMax": [
        Case('type: "ArgMax" argmax_param { top_k: 2 }', (IMAGE,)),
        Case('type: "ArgMax" argmax_param { out_max_val: true }', (MATRIX,), label="values"),
        Case('type: "ArgMax" argmax_param { out_max_val: true axis: 1 }', (IMAGE,), label="axis"),
    ],
    "BatchReindex": [
        Case('type: "BatchReindex"', ((3, 2, 2, 2), np.array([2, 0, 2, 1, 2.0])), gradient=(0,)),
        Case('type: "BatchReindex"', ((3, 2), np.array([1.0])), gradient=(0,)),
    ],
    "Filter": [Case('type: "Filter"', ((4, 2, 2, 1), (4, 3), np.array([1, 0, 0, 2.0])), gradient=(0, 1), n_tops=2),
               Case('type: "Filter"', ((3, 2), np.array([[1], [1], [0.0]])), gradient=(0,))],
    "Crop": [
        Case('type: "Crop" crop_param { offset: 1 }', ((2, 2, 4, 3), (2, 2, 2, 2))),
        Case('type: "Crop" crop_param { axis: 1 offset: 1 offset: 0 offset: 2 }', ((1, 3, 3, 3), (1, 2, 3, 1))),
        Case('type: "Crop" crop_param { axis: -1 }', ((2, 4), (2, 3))),
    ],
    "SPP": [
        Case('type: "SPP" spp_param { pyramid_height: 1 pool: AVE }', ((2, 2, 3, 2),)),
        Case('type: "SPP" spp_param { pyramid_height: 3 }', ((1, 2, 7, 4),), label="MAX"),
        Case('type: "SPP" spp_param { pyramid_height: 2 pool: STOCHASTIC }', (spread((1, 2, 4, 2), 0.1, 1),)),
        Case('type: "SPP" spp_param { pyramid_height: 2 pool: AVE }', ((2, 1, 3, 5),), label="AVE"),
    ],
    "Embed": [
        Case('type: "Embed" embed_param { input_dim: 4 num_output: 3 weight_filler { type: "xavier" } '
             'bias_filler { type: "uniform" } }', (np.array([3, 1, 3, 0.0]),), gradient=()),
        Case('type: "Embed" embed_param { input_dim: 3 num_output: 2 bias_term: false weight_filler { type: "xavier" }'
             " }", (np.array([0, 1, 2, 2.0]).reshape(2, 1, 2),), gradient=(), label="image"),
    ],
    "MVN": [
        *[Case(f'type: "MVN" mvn_param {{ {options} }}', (IMAGE,), label=options)
          for options in ("", "across_channels: true", "normalize_variance: false")],
        Case('type: "MVN" mvn_param { across_channels: true }', ((2, 5),), label="matrix"),
    ],
    "Im2col": [
        Case('type: "Im2col" convolution_param { kernel_size: 2 stride: 2 pad: 1 }', ((2, 2, 3, 3),)),
        Case('type: "Im2col" convolution_param { kernel_h: 3 kernel_w: 1 pad_h: 1 pad_w: 0 stride_h: 1 stride_w: 2 }',
             ((1, 2, 3, 4),)),
        Case('type: "Im2col" convolution_param { kernel_size: 2 dilation: 2 force_nd_im2col: true }',
             ((1, 2, 4, 3),), label="dilation"),
        Case('type: "Im2col" convolution_param { kernel_size: 2 kernel_size: 1 kernel_size: 2 }', ((1, 2, 2, 2, 3),),
             label="volume"),
        Case('type: "Im2col" convolution_param { kernel_size: 2 axis: 2 }', ((2, 1, 2, 3),), label="axis"),
    ],
}

NO_GRADIENT: dict[str, str] = {
    "Accuracy": "counts right answers: constant almost everywhere",
    "ArgMax": "indices; the values' gradient is not defined by Caffe",
    **dict.fromkeys(("Data", "HDF5Data", "ImageData", "MemoryData", "WindowData"), "a source of data"),
    "DummyData": "no bottoms",
    "HDF5Output": "no tops; what it writes is tested by value",
    "Input": "no bottoms",
    "Silence": "no tops; its zero diffs are tested by value",
    "Threshold": "constant almost everywhere; Caffe defines no gradient",
}
