"""Times beside a device's peaks: closed forms."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from scaffe.nets.roofline import Peaks, Work, operations_a_clock, roofline_lines, work
from tests.scaffe.nets.test_fusion import build

NET = '''layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 3 dim: 4 dim: 3 dim: 2 } } }
    layer { name: "labels" type: "Input" top: "label" input_param { shape { dim: 3 } } }
    layer { name: "conv" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 6 kernel_size: 1 } }
    layer { name: "relu" type: "ReLU" bottom: "c" top: "c" }
    layer { name: "quiet" type: "Silence" bottom: "c" }
    layer { name: "flat" type: "Flatten" bottom: "c" top: "f" }
    layer { name: "ip" type: "InnerProduct" bottom: "f" top: "ip" inner_product_param { num_output: 2 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'''
X, C, W = 8 * 3 * 4 * 6, 8 * 3 * 6 * 6, 8 * (6 * 4 + 6)  # bytes of float64


def test_the_work_of_layers() -> None:
    net = build(NET, force=False)
    got = {node.name: work(node, {"conv": (720, 720)}.get(node.name, (0, 0))) for node in net.nodes}
    assert got["conv"] == (Work(1440, X + C + W), Work(1440, C + X + 2 * W))  # gradient of c, x again; of W twice
    assert got["relu"] == (Work(0, C), Work(0, C + C))  # in place: the gradient, and the signs
    assert got["flat"][0] == Work(0, 2 * C)  # to Caffe's order
    assert got["c_relu_0_split"][0] == Work(0, 0)


def test_published_rates_follow_from_clocks() -> None:
    """Dense, of NVIDIA's data sheets, to 2 %: multiprocessors, boost clock in GHz, TFLOP/s."""
    half, single = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
    for capability, n, clock, of_half in ((70, 80, 1.53, 125), (80, 108, 1.41, 312), (89, 142, 2.52, 362),
                                          (90, 132, 1.83, 989)):
        assert operations_a_clock(capability, half, True) * n * clock / 1e3 == pytest.approx(of_half, rel=0.02)
    assert operations_a_clock(80, single, True) * 108 * 1.41 / 1e3 == pytest.approx(156, rel=0.01)
    assert operations_a_clock(80, single, False) * 108 * 1.41 / 1e3 / 2 == pytest.approx(19.5, rel=0.01)
    assert operations_a_clock(70, single, True) * 80 * 1.53 / 1e3 == pytest.approx(31.4, rel=0.01)
    assert operations_a_clock(99, half, True) is None


def test_the_larger_of_both_is_the_least_time() -> None:
    peaks = Peaks(100.0, 10.0)
    assert peaks.seconds(50, 1) == 0.5
    assert peaks.seconds(50, 20) == 2.0


def test_a_line_a_layer() -> None:
    net = build(NET, force=False)
    numbers = {node.name: index for index, node in enumerate(net.nodes)}
    forward = {numbers["conv"]: 1e-3, numbers["c_relu_0_split"]: 1e-3, numbers["relu"]: 0.0}
    backward = {numbers["conv"]: 0.5}
    moved, back = X + C + W, C + X + 2 * W
    lines = roofline_lines(net, forward, backward, Peaks(1e12, 4e3 * moved), 3)
    assert lines == [f"      conv\tforward: 3,000 images/s, {moved / 1e-3 / 1e9:.3g} GB/s, 25% of the roofline."
                     f"\tbackward: 6 images/s, {back / 0.5 / 1e9:.3g} GB/s, {back / (4e3 * moved) / 0.5:.0%} of the "
                     "roofline."]
