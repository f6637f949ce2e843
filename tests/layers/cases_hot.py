"""Gradient cases of the layers that take a net's time."""

from __future__ import annotations

import numpy as np

from scaffe.layers.base.layer import TEST
from tests.layers.gradient_check import Case, spread

IMAGE = (2, 3, 4, 5)
FILLED = 'weight_filler { type: "uniform" min: -1 max: 1 } bias_filler { type: "uniform" min: -1 max: 1 }'


def conv(options: str, shape: tuple[int, ...] = IMAGE, kind: str = "Convolution", n_bottoms: int = 1, **more) -> Case:
    """A convolution with random weights."""
    options_of = "local_convolution_param" if kind == "LocalConvolution" else "convolution_param"
    text = f'type: "{kind}" {options_of} {{ {options} {FILLED} }}'
    return Case(text, (shape,) * n_bottoms, label=f"{options} {'x'.join(map(str, shape))} {n_bottoms}", **more)


def product(options: str, shape: tuple[int, ...] = IMAGE) -> Case:
    """An inner product with random weights."""
    return Case(f'type: "InnerProduct" inner_product_param {{ {options} {FILLED} }}', (shape,),
                label=f"{options} {'x'.join(map(str, shape))}")


def pool(options: str, shape: tuple[int, ...] = IMAGE, **more) -> Case:
    """A pooling."""
    return Case(f'type: "Pooling" pooling_param {{ {options} }}', (shape,), label=f"{options} {more}", **more)


def plain(layer_type: str, options: str = "", *shapes, **more) -> Case:
    """A layer on shapes or arrays."""
    label = f"{options} {more.get('in_place', '')}{more.get('phase', '')}"
    label += " ".join("x".join(map(str, s)) for s in shapes if isinstance(s, tuple))
    return Case(f'type: "{layer_type}" {options}', shapes or (IMAGE,), label=label, **more)


LABELS = np.array([2, 0, 1, 1, 0, 2], float)
POSITIONS = (2, 4, 3, 1)  # images of 4 classes, 3 positions each

CASES: dict[str, list[Case]] = {
    "Convolution": [
        conv("num_output: 4 kernel_size: 3"),
        conv("num_output: 4 kernel_size: 3 stride: 2 pad: 1", (1, 2, 5, 4)),
        conv("num_output: 6 kernel_size: 3 group: 3 pad: 1", (2, 3, 3, 2)),
        conv("num_output: 2 kernel_size: 2 dilation: 2"),
        conv("num_output: 3 kernel_size: 1 bias_term: false", (1, 3, 2, 2)),
        conv("num_output: 2 kernel_h: 1 kernel_w: 3 pad_h: 0 pad_w: 1 stride_h: 2 stride_w: 1"),
        conv("num_output: 2 kernel_size: 5 pad: 2", (1, 1, 3, 3)),
        conv("num_output: 2 kernel_size: 2", (1, 2, 3, 3, 2)),
        conv("num_output: 2 kernel_size: 3", (2, 2, 4)),
        conv("num_output: 2 kernel_size: 2", (1, 2, 3, 2), n_bottoms=2),
        conv("num_output: 3 kernel_size: 2 pad: 1 stride: 2 axis: 2", (2, 3, 2, 3, 4)),
        conv("num_output: 3 kernel_size: 2 axis: -2 bias_term: false", (2, 3, 2, 3)),
        conv("num_output: 3 kernel_size: 2 axis: 0", (2, 3, 4), batch=False),
        conv("num_output: 3 kernel_size: 1", (3, 4)),
        conv("num_output: 2 kernel_size: 2 force_nd_im2col: true", (1, 2, 3, 3)),
        conv("num_output: 2 kernel_size: 2", (1, 1, 2, 3, 2, 2)),
    ],
    "LocalConvolution": [
        conv("num_output: 2 kernel_size: 2", (2, 2, 3, 2), "LocalConvolution"),
        conv("num_output: 2 kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 0 stride_h: 2 stride_w: 1 bias_term: false",
             (2, 2, 3, 3), "LocalConvolution"),
        conv("num_output: 1 kernel_size: 2 dilation: 2 pad: 1 stride: 2", (1, 2, 3, 2), "LocalConvolution")],
    "Deconvolution": [
        conv("num_output: 2 kernel_size: 3", (1, 3, 2, 3), "Deconvolution"),
        conv("num_output: 2 kernel_size: 4 stride: 2 pad: 1", (1, 2, 2, 2), "Deconvolution"),
        conv("num_output: 4 kernel_size: 2 stride: 2 group: 2 bias_term: false", (2, 2, 2, 1), "Deconvolution"),
        conv("num_output: 2 kernel_size: 2 dilation: 2", (1, 2, 2, 2), "Deconvolution"),
        conv("num_output: 3 kernel_size: 3 stride: 2 pad: 1 axis: 2", (2, 2, 2, 2, 3), "Deconvolution"),
        conv("num_output: 2 kernel_size: 2 axis: 0", (2, 3), "Deconvolution", batch=False),
        conv("num_output: 2 kernel_size: 2", (1, 2, 2, 3, 2), "Deconvolution"),
        conv("num_output: 2 kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 0 stride_h: 1 stride_w: 2 force_nd_im2col: true",
             (1, 2, 2, 3), "Deconvolution"),
    ],
    "InnerProduct": [
        product("num_output: 4", (2, 3, 2, 2)),
        product("num_output: 4 transpose: true", (2, 3, 2, 2)),
        product("num_output: 3 bias_term: false", (3, 5)),
        product("num_output: 3 axis: 2", (2, 2, 3, 2)),
        product("num_output: 3 axis: -1", (1, 2, 2, 3)),
    ],
    "Pooling": [
        pool("kernel_size: 2 stride: 2"),
        pool("kernel_size: 3 stride: 2 pad: 1"),
        pool("kernel_size: 2 stride: 2 pad: 1", (1, 2, 3, 3)),
        pool("kernel_size: 3 stride: 2 round_mode: FLOOR"),
        pool("kernel_size: 2 stride: 1", n_tops=2, tops=(0,)),
        pool("kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 2"), pool("kernel_h: 2 kernel_w: 3 pad_h: 1 pad_w: 2"),
        pool("pool: AVE kernel_h: 2 kernel_w: 3 pad_h: 0 pad_w: 2 stride: 2"),
        pool("global_pooling: true"),
        pool("pool: AVE kernel_size: 2 stride: 2"),
        pool("pool: AVE kernel_size: 3 stride: 2 pad: 1"),
        pool("pool: AVE kernel_size: 3 stride: 2"),
        pool("pool: AVE global_pooling: true"),
        Case('type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }', (spread(IMAGE, 0.1, 1),)),
    ],
    "ReLU": [
        plain("ReLU"), plain("ReLU", "", in_place=True),
        plain("ReLU", "relu_param { negative_slope: 0.3 }", in_place=True),
        plain("ReLU", "relu_param { negative_slope: -0.4 }", in_place=True),
    ],
    "LRN": [
        plain("LRN", "lrn_param { alpha: 2 }", (2, 7, 2, 2)),
        plain("LRN", "lrn_param { local_size: 3 alpha: 1.5 beta: 0.6 k: 2 }", (1, 5, 2, 2)),
        plain("LRN", "lrn_param { local_size: 5 alpha: 3 }", (1, 2, 2, 1)),
        plain("LRN", "lrn_param { local_size: 3 alpha: 5 norm_region: WITHIN_CHANNEL k: 3 }", (1, 2, 4, 3)),
    ],
    "LCN": [
        plain("LCN", "lcn_param { local_size: 3 sigma: 1 }", (2, 2, 4, 3)),
        plain("LCN", "lcn_param { local_size: 5 sigma: 1.5 across_channels: false }", (1, 2, 3, 4)),
        plain("LCN", "lcn_param { least: 3 }", (1, 2, 2, 3)), plain("LCN", "lcn_param { local_size: 1 }")],
    "Dropout": [
        plain("Dropout"), plain("Dropout", "dropout_param { dropout_ratio: 0.3 }", in_place=True),
        plain("Dropout", "dropout_param { dropout_ratio: 0.3 scale_train: false }"),
        plain("Dropout", "dropout_param { scale_train: false }", (3, 4), in_place=True, phase=TEST),
        plain("Dropout", "dropout_param { sample_weights_test: true }", (3, 4), phase=TEST),
        plain("Dropout", "", phase=TEST), plain("Dropout", "", (3, 4), in_place=True, phase=TEST),
    ],
    "Softmax": [
        plain("Softmax", "", (2, 3)), plain("Softmax", "", (2, 3, 2, 2)),
        plain("Softmax", "softmax_param { axis: 2 }", (2, 2, 3, 2)), plain("Softmax", "", (2, 3), in_place=True),
        plain("Softmax", "softmax_param { axis: 0 }", (3, 2), batch=False),
    ],
    "SoftmaxWithLoss": [
        plain("SoftmaxWithLoss", options, spread(POSITIONS, -2, 2), LABELS.reshape(2, 1, 3, 1), gradient=(0,))
        for options in ("", "loss_param { ignore_label: 1 }", "loss_param { ignore_label: 0 normalization: FULL }",
                        "loss_param { normalization: BATCH_SIZE }", "loss_param { normalization: NONE }",
                        "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 3 }",
                        "loss_param { normalize: false }",
                        "loss_param { normalize: true ignore_label: 2 }",
                        "loss_param { weight_by_label_freqs: true class_weighting: [0.5, 2, 3, 0] ignore_label: 1 }")
    ] + [
        plain("SoftmaxWithLoss", "", spread((6, 3), -3, 3), LABELS, gradient=(0,), n_tops=2, tops=(0,)),
        plain("SoftmaxWithLoss", "softmax_param { axis: -1 }", spread((2, 3, 4), -3, 3), LABELS.reshape(2, 3),
              gradient=(0,)),
    ],
    "Split": [plain("Split", "", n_tops=3), plain("Split", "", (2, 3), n_tops=1), plain("Split", "", (2, 3), n_tops=2)],
    "Concat": [
        plain("Concat", "", (2, 1, 2, 3), (2, 3, 2, 3), (2, 2, 2, 3)), plain("Concat", "", (2, 3), (2, 1)),
        plain("Concat", "concat_param { axis: 0 }", (1, 2, 2, 2), (2, 2, 2, 2), batch=False),
        plain("Concat", "concat_param { concat_dim: 2 }", (1, 2, 2, 2), (1, 2, 1, 2)),
        plain("Concat", "concat_param { axis: -1 }", (1, 2, 2, 2), (1, 2, 2, 1)), plain("Concat", "", (2, 3)),
    ],
    "Eltwise": [
        plain("Eltwise", f"eltwise_param {{ {options} }}",
              *[spread((2, 3, 2, 2), -1 - i / 99, seed=i) for i in range(n)])
        for n in (2, 3) for options in ("operation: SUM", "operation: PROD", "operation: MAX",
                                        "operation: PROD stable_prod_grad: false")
    ] + [
        plain("Eltwise", "eltwise_param { coeff: 2 coeff: -0.5 coeff: 1 }", (2, 3), (2, 3), (2, 3)),
        plain("Eltwise", "", (2, 3), (2, 3)),
    ],
    "Flatten": [
        plain("Flatten", "", (2, 3, 2, 2)), plain("Flatten", "flatten_param { axis: 2 }", (2, 3, 2, 2)),
        plain("Flatten", "flatten_param { axis: 0 end_axis: 1 }", (2, 3, 2, 2)),
        plain("Flatten", "flatten_param { axis: -3 end_axis: -2 }", (2, 3, 2, 2, 2)),
    ],
    "BatchNorm": [
        plain("BatchNorm", "", (3, 2, 2, 2), params=(), batch=False),
        plain("BatchNorm", "", (3, 2, 2, 2), params=(), in_place=True, batch=False),
        plain("BatchNorm", "", (4, 3), params=()), plain("BatchNorm", "", (2, 3, 4), params=()),
        plain("BatchNorm", "batch_norm_param { eps: 0.1 }", (5,), params=()),
        plain("BatchNorm", "batch_norm_param { use_global_stats: true eps: 0.3 }", (2, 3, 2, 1), params=()),
        plain("BatchNorm", "batch_norm_param { use_global_stats: false }", (3, 2, 2, 2), params=(), phase=TEST,
              batch=False),
    ],
    "Scale": [
        plain("Scale", "", (2, 3, 2, 2)), plain("Scale", "", (2, 3, 2, 2), in_place=True),
        plain("Scale", 'scale_param { bias_term: true filler { type: "uniform" min: -1 max: 1 } }', (2, 3, 2, 2)),
        plain("Scale", 'scale_param { bias_term: true bias_filler { type: "uniform" } }', (2, 3), in_place=True),
        plain("Scale", "scale_param { axis: 2 num_axes: 2 bias_term: true }", (2, 2, 3, 2)),
        plain("Scale", "scale_param { axis: 1 num_axes: -1 }", (2, 2, 3, 2)),
        plain("Scale", "scale_param { num_axes: 0 }", (2, 2, 3, 2)),
        plain("Scale", "scale_param { axis: 0 bias_term: true }", spread((2, 3, 2, 2)), spread((2, 3), seed=1),
              batch=False),
        plain("Scale", "", spread((2, 3, 2, 2)), spread((3,), seed=1), batch=False),
    ],
    "Bias": [
        plain("Bias", 'bias_param { filler { type: "uniform" min: -1 max: 1 } }', (2, 3, 2, 2)),
        plain("Bias", "bias_param { axis: -1 }", (2, 3, 2, 2), in_place=True),
        plain("Bias", "bias_param { axis: 2 num_axes: 2 }", (2, 2, 3, 2)),
        plain("Bias", "bias_param { axis: 0 }", spread((2, 3, 2, 2)), spread((2, 3), seed=1)),
    ],
}

NO_GRADIENT: dict[str, str] = {}
