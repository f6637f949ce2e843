"""Gradient cases of the layers that nearly every net has."""

from __future__ import annotations

import numpy as np

from layers.layer import TEST
from tests.layers.gradient_check import Case, spread

IMAGE = (2, 3, 3, 2)
FILLERS = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -1 }'
SCALE = 'filler { type: "uniform" min: -1 }'
LABELS = np.array([0, 2, 1, 2.0])
PLACES = np.array([0, 2, 1, -1, 2, 0, 1, 1.0]).reshape(2, 2, 2)


def convolution(options: str, shape: tuple[int, ...], layer_type: str = "Convolution", n_bottoms: int = 1) -> Case:
    """A convolution or deconvolution."""
    text = f'type: "{layer_type}" convolution_param {{ {options} {FILLERS} }}'
    return Case(text, tuple(spread(shape, seed=i) for i in range(n_bottoms)), label=options)


def inner_product(options: str, shape: tuple[int, ...]) -> Case:
    """An inner product."""
    return Case(f'type: "InnerProduct" inner_product_param {{ {options} {FILLERS} }}', (shape,), label=options)


def pooling(options: str, shape: tuple[int, ...] = (2, 2, 5, 4), **keywords) -> Case:
    """A pooling."""
    return Case(f'type: "Pooling" pooling_param {{ {options} }}', (shape,), label=options, **keywords)


CASES: dict[str, list[Case]] = {
    "Convolution": [
        convolution("num_output: 2 kernel_size: 2", (2, 2, 3, 3)),
        convolution("num_output: 2 kernel_size: 1", (2, 3, 2, 2)),
        convolution("num_output: 4 group: 2 kernel_size: 3 stride: 2 pad: 1", (1, 4, 4, 3)),
        convolution("num_output: 3 kernel_h: 1 kernel_w: 3 pad_h: 0 pad_w: 2 stride_h: 2 stride_w: 1 bias_term: false",
                    (1, 2, 3, 3)),
        convolution("num_output: 2 kernel_size: 2 dilation: 2", (1, 2, 4, 3)),
        convolution("num_output: 2 kernel_size: 2", (1, 2, 4)),
        convolution("num_output: 2 kernel_size: 2 stride: 2", (1, 2, 2, 3, 2)),
        convolution("num_output: 1 kernel_size: 2", (1, 2, 3, 2), n_bottoms=2),
    ],
    "Deconvolution": [
        convolution("num_output: 2 kernel_size: 2", (2, 2, 2, 3), "Deconvolution"),
        convolution("num_output: 4 group: 2 kernel_size: 3 stride: 2 pad: 1", (1, 2, 3, 2), "Deconvolution"),
        convolution("num_output: 2 kernel_size: 2 dilation: 2 bias_term: false", (1, 2, 2, 2), "Deconvolution"),
    ],
    "InnerProduct": [
        inner_product("num_output: 3", (2, 4)),
        inner_product("num_output: 3", IMAGE),
        inner_product("num_output: 3 bias_term: false transpose: true", (2, 2, 3)),
        inner_product("num_output: 2 axis: 2", (2, 3, 2, 2)),
        inner_product("num_output: 2 axis: -1", (2, 3, 4)),
    ],
    "Pooling": [
        pooling("kernel_size: 2 stride: 2"), pooling("kernel_size: 3 stride: 2 pad: 1"),
        pooling("pool: AVE kernel_size: 3 stride: 2 pad: 1"), pooling("pool: AVE global_pooling: true"),
        pooling("kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2"),
        pooling("pool: AVE kernel_size: 2 stride: 2 round_mode: FLOOR"),
        pooling("kernel_size: 2 stride: 2", n_tops=2, tops=(0,)),
    ],
    "ReLU": [
        Case('type: "ReLU"', (IMAGE,)), Case('type: "ReLU"', ((2, 5),), in_place=True, label="in place"),
        Case('type: "ReLU" relu_param { negative_slope: 0.3 }', (IMAGE,), label="leaky"),
    ],
    "Softmax": [
        Case('type: "Softmax"', (spread((3, 4), -2, 2),)),
        Case('type: "Softmax"', (spread(IMAGE, -2, 2),), label="image"),
        Case('type: "Softmax" softmax_param { axis: -1 }', (spread((2, 2, 3), -2, 2),), label="last"),
    ],
    "SoftmaxWithLoss": [
        Case('type: "SoftmaxWithLoss"', (spread((4, 3), -2, 2), LABELS), gradient=(0,)),
        *[Case(f'type: "SoftmaxWithLoss" loss_param {{ ignore_label: -1 normalization: {mode} }}',
               (spread((2, 3, 2, 2), -2, 2), PLACES), gradient=(0,), n_tops=2, tops=(0,), label=mode)
          for mode in ("FULL", "VALID", "BATCH_SIZE", "NONE")],
        Case('type: "SoftmaxWithLoss" softmax_param { axis: 2 }',
             (spread((2, 2, 3), -2, 2), np.array([[0, 1], [2, 2.0]])), gradient=(0,), label="axis"),
    ],
    "Dropout": [
        Case('type: "Dropout"', (IMAGE,)),
        Case('type: "Dropout" dropout_param { dropout_ratio: 0.3 }', ((3, 4),), in_place=True, label="in place"),
        Case('type: "Dropout"', (IMAGE,), phase=TEST, label="test"),
    ],
    "Flatten": [
        Case('type: "Flatten"', (IMAGE,)),
        Case('type: "Flatten" flatten_param { axis: 1 end_axis: 2 }', (IMAGE,), label="some"),
        Case('type: "Flatten" flatten_param { axis: 0 end_axis: -3 }', (IMAGE,), batch=False, label="from 0"),
    ],
    "LRN": [
        Case('type: "LRN" lrn_param { local_size: 3 alpha: 0.9 beta: 0.75 k: 2 }', ((2, 5, 2, 1),)),
        Case('type: "LRN" lrn_param { local_size: 3 alpha: 0.9 beta: 0.6 norm_region: WITHIN_CHANNEL }',
             ((1, 2, 3, 4),), label="within"),
    ],
    "Concat": [
        Case('type: "Concat"', (IMAGE, (2, 1, 3, 2))),
        Case('type: "Concat" concat_param { axis: 0 }', ((2, 3), (1, 3), (2, 3)), batch=False, label="axis 0"),
        Case('type: "Concat" concat_param { axis: -1 }', (IMAGE, (2, 3, 3, 1)), label="last axis"),
        Case('type: "Concat" concat_param { concat_dim: 1 }', ((2, 3),), label="one bottom"),
    ],
    "Eltwise": [
        *[Case(f'type: "Eltwise" eltwise_param {{ operation: {op} }}',
               tuple(spread(IMAGE, seed=i) for i in range(3)), label=op) for op in ("SUM", "PROD", "MAX")],
        Case('type: "Eltwise" eltwise_param { coeff: 0.5 coeff: -2 }', (spread((2, 3), seed=1), spread((2, 3), seed=2)),
             label="coeff"),
        Case('type: "Eltwise" eltwise_param { operation: PROD stable_prod_grad: false }',
             (spread((2, 3), seed=1), spread((2, 3), seed=2)), label="quick"),
    ],
    "Scale": [
        Case(f'type: "Scale" scale_param {{ {SCALE} bias_term: true }}', (IMAGE,)),
        Case(f'type: "Scale" scale_param {{ {SCALE} axis: 2 num_axes: 1 }}', ((2, 3, 4),), label="axis"),
        Case(f'type: "Scale" scale_param {{ {SCALE} axis: 0 num_axes: 0 }}', ((2, 3),), label="scalar"),
        Case('type: "Scale" scale_param { axis: 0 }', (IMAGE, spread((2, 3), seed=4)), label="two bottoms"),
        Case(f'type: "Scale" scale_param {{ {SCALE} bias_term: true }}', ((2, 3),), in_place=True, label="in place"),
    ],
    "Bias": [
        Case('type: "Bias" bias_param { filler { type: "uniform" } }', (IMAGE,)),
        Case('type: "Bias" bias_param { filler { type: "uniform" } axis: 2 num_axes: -1 }', ((2, 3, 4),), label="axis"),
        Case('type: "Bias" bias_param { axis: 1 }', (IMAGE, spread((3, 3), seed=4)), batch=False, label="two bottoms"),
        Case('type: "Bias" bias_param { filler { type: "uniform" } }', ((2, 3),), in_place=True, label="in place"),
    ],
    "BatchNorm": [
        Case('type: "BatchNorm"', ((3, 2, 2, 2),), params=(), batch=False),
        Case('type: "BatchNorm" batch_norm_param { eps: 0.1 }', ((4, 3),), params=(), in_place=True, batch=False,
             label="in place"),
        Case('type: "BatchNorm" batch_norm_param { eps: 0.5 use_global_stats: true }', (IMAGE,), params=(),
             label="global"),
        Case('type: "BatchNorm" batch_norm_param { eps: 0.5 }', (IMAGE,), params=(), phase=TEST, label="test"),
    ],
    "Split": [Case('type: "Split"', (IMAGE,), n_tops=3), Case('type: "Split"', ((2, 3),), n_tops=1)],
}

NO_GRADIENT: dict[str, str] = {}
