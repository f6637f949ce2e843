"""Small nets for the tests of the Python interface."""

from __future__ import annotations

import numpy as np

import scaffe as caffe

SMALL = """name: "small" force_backward: true
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 4 dim: 2 dim: 5 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: "xavier" }
                            bias_filler { type: "constant" value: 0.5 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
        inner_product_param { num_output: 7 weight_filler { type: "xavier" } } }
layer { name: "a" type: "TanH" bottom: "ip" top: "a" }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""

LEARNING = """name: "learning"
layer { name: "d" type: "DummyData" top: "data" top: "label"
        dummy_data_param { shape { dim: 5 dim: 8 } shape { dim: 5 }
                           data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
"""


def small(folder, phase=caffe.TEST, **options):
    """The net SMALL, its file in a folder."""
    (folder / "small.prototxt").write_text(SMALL)
    return caffe.Net(str(folder / "small.prototxt"), phase, **options)


def pixels(n_images=4, seed=0):
    """Random inputs for SMALL."""
    return np.random.default_rng(seed).standard_normal((n_images, 2, 5, 6)).astype(np.float32)
