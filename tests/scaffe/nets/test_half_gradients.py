"""Gradients of a residual net in bfloat16 differ from float32's by what its rounding costs, layer by layer.

The yardstick is the net's formulas written out in float64, once as they are and once with every blob and every gradient
of a blob rounded to bfloat16, as well as the weights that products take.
"""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TRAIN
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text
from tests.scaffe.nets.widened import is_widened

ml_dtypes = pytest.importorskip("ml_dtypes")
N, SIDE, WIDTH, N_BLOCKS, N_CLASSES, EPS = 16, 10, 24, 3, 7, 1e-5
KINDS = {"fp32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


def conv(name, bottom, relu=True):
    """A 3x3 convolution, batch norm and scale, with a ReLU unless told otherwise."""
    fill = 'weight_filler { type: "msra" }'
    return (f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ '
            f'num_output: {WIDTH} kernel_size: 3 pad: 1 bias_term: false {fill} }} }}'
            f'layer {{ name: "{name}_n" type: "BatchNorm" bottom: "{name}" top: "{name}" }}'
            f'layer {{ name: "{name}_s" type: "Scale" bottom: "{name}" top: "{name}" '
            "scale_param { bias_term: true } }"
            + (f'layer {{ name: "{name}_r" type: "ReLU" bottom: "{name}" top: "{name}" }}' if relu else ""))


def text():
    """The net's: a convolution, blocks of two that are added to what they read, the mean of each channel, a loss."""
    shapes = f"shape {{ dim: {N} dim: 3 dim: {SIDE} dim: {SIDE} }} shape {{ dim: {N} }}"
    parts = [f'layer {{ name: "in" type: "Input" top: "x" top: "label" input_param {{ {shapes} }} }}', conv("c", "x")]
    bottom = "c"
    for i in range(N_BLOCKS):
        parts += [conv(f"a{i}", bottom), conv(f"b{i}", f"a{i}", relu=False),
                  f'layer {{ name: "e{i}" type: "Eltwise" bottom: "b{i}" bottom: "{bottom}" top: "e{i}" }}'
                  f'layer {{ name: "e{i}_r" type: "ReLU" bottom: "e{i}" top: "e{i}" }}']
        bottom = f"e{i}"
    pool = "pooling_param { pool: AVE global_pooling: true }"
    return "".join(parts) + (
        f'layer {{ name: "p" type: "Pooling" bottom: "{bottom}" top: "p" {pool} }}'
        f'layer {{ name: "i" type: "InnerProduct" bottom: "p" top: "i" inner_product_param {{ num_output: '
        f'{N_CLASSES} weight_filler {{ type: "xavier" }} }} }}'
        'layer { name: "l" type: "SoftmaxWithLoss" bottom: "i" bottom: "label" top: "l" }')


def trained(dtype, x, labels):
    """Weights and gradients by layer after one forward and backward."""
    message = graph.prepare(parse_text(text(), caffe_pb2.NetParameter), TRAIN)
    net = build_net(message, Context(TRAIN, cpu, dtype, Stream(7)))
    net.blobs["x"].data[...], net.blobs["label"].data[...] = x, labels
    net.clear_param_diffs()
    net.forward_backward()
    learned = [node for node in net.nodes if node.layer.blobs and not node.name.endswith("_n")]
    return ({node.name: np.array(node.layer.blobs[0].data, np.float64) for node in learned},
            {node.name: np.array(node.layer.blobs[0].diff, np.float64).ravel() for node in learned})


class Naive:
    """The formulas, forward and backward; ``rounded`` is applied to every blob, its gradient, and products' weights."""

    def __init__(self, weights, rounded):
        self.w, self.r, self.grads = weights, rounded, {}

    def windows(self, x):
        """Of the padded images, (N, C, H, W, 3, 3)."""
        return np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))

    def conv(self, name, x, relu=True):
        """Its output, and what makes of the output's gradient that of x."""
        w = self.r(self.w[name])
        c = self.r(np.einsum("nchwij,ocij->nohw", self.windows(x), w))
        mean, deviation = c.mean((0, 2, 3), keepdims=True), np.sqrt(c.var((0, 2, 3), keepdims=True) + EPS)
        normal = (c - mean) / deviation
        y = self.r(np.maximum(normal, 0) if relu else normal)  # Scale begins as 1, its bias as 0

        def back(gy):
            g = np.where(normal > 0, gy, 0) if relu else gy
            self.grads[f"{name}_s"] = (g * normal).sum((0, 2, 3))
            spread = g - g.mean((0, 2, 3), keepdims=True) - normal * (g * normal).mean((0, 2, 3), keepdims=True)
            gc = self.r(spread / deviation)
            self.grads[name] = np.einsum("nchwij,nohw->ocij", self.windows(x), gc).ravel()
            turned = np.swapaxes(w, 0, 1)[:, :, ::-1, ::-1]
            return self.r(np.einsum("nohwij,coij->nchw", self.windows(gc), turned))

        return y, back

    def run(self, x, labels):
        """Gradients by layer."""
        r, backs = self.r, []
        y, first = self.conv("c", r(x))
        for i in range(N_BLOCKS):
            a, back_a = self.conv(f"a{i}", y)
            b, back_b = self.conv(f"b{i}", a, relu=False)
            y = r(np.maximum(b + y, 0))
            backs.append((y, back_a, back_b))
        means, w = r(y.mean((2, 3))), r(self.w["i"])
        scores = r(means @ w.T)
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        g = r((shares - np.eye(N_CLASSES)[labels]) / N)
        self.grads["i"] = (g.T @ means).ravel()
        gy = r(np.broadcast_to((r(g @ w) / SIDE**2)[:, :, None, None], y.shape))
        for top, back_a, back_b in reversed(backs):
            g = r(np.where(top > 0, gy, 0))
            gy = r(g + back_a(back_b(g)))
        first(gy)
        return self.grads


def away(found, true):
    """How far gradients are from the true ones, by layer, in lengths of those."""
    return {name: np.linalg.norm(found[name] - true[name]) / np.linalg.norm(true[name]) for name in true}


def test_each_layers_gradient_is_as_far_from_float32s_as_rounding_alone():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((N, 3, SIDE, SIDE)).astype(KINDS["bf16"]).astype(np.float32)
    labels = rng.integers(0, N_CLASSES, N)
    weights, single = trained(KINDS["fp32"], x, labels)
    _, half = trained(KINDS["bf16"], x, labels)
    true = Naive(weights, lambda v: v).run(x.astype(np.float64), labels)
    rounded = Naive(weights, lambda v: np.asarray(v, np.float32).astype(KINDS["bf16"]).astype(np.float64)).run(
        x.astype(np.float64), labels)
    assert set(single) == set(half) == set(true)
    ours, wide, yardstick = away(half, true), away(single, true), away(rounded, true)
    assert max(wide.values()) < 1e-4
    assert max(yardstick.values()) < 0.5  # it measures something
    least = 0 if is_widened() else 0.7  # convolutions that run in float32 round less
    for name in true:
        assert least < ours[name] / yardstick[name] < 1.3, name
