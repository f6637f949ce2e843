"""Nets whose activations are bfloat16 on the CPU, beside the same nets in float32."""

import numpy as np
import pytest

from scaffe.layers.base.context import Context
from scaffe.layers.base.host_fallback import HostFallback
from scaffe.layers.base.layer import TEST, TRAIN
from scaffe.layers.base.random import Stream
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.devices import Compute, load_kernels
from scaffe.nets.inference.passes import Inference
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text
from tests.scaffe.nets.widened import is_widened

HEAD = """
layer { name: "in" type: "Input" top: "data" top: "label" input_param {
        shape { dim: 6 dim: 3 dim: 17 dim: 13 } shape { dim: 6 } } }
"""
END = """
layer { name: "ip" type: "InnerProduct" bottom: "%s" top: "ip" inner_product_param { num_output: 7
        weight_filler { type: "xavier" } bias_filler { type: "constant" value: 0.1 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" include { phase: TEST } }
"""
CONV = """
layer { name: "%s" type: "Convolution" bottom: "%s" top: "%s" convolution_param { %s weight_filler { type: "msra" }
        bias_filler { type: "constant" value: 0.05 } } }
"""
PLAIN = (HEAD + CONV % ("c1", "data", "c1", "num_output: 10 kernel_size: 3 stride: 2") + """
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "n" type: "LRN" bottom: "c1" top: "n" lrn_param { local_size: 5 alpha: 0.5 } }
layer { name: "p" type: "Pooling" bottom: "n" top: "p" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
""" + CONV % ("c2", "p", "c2", "num_output: 8 kernel_size: 3 pad: 1 group: 2") + """
layer { name: "e" type: "ELU" bottom: "c2" top: "e" }
layer { name: "s" type: "Slice" bottom: "e" top: "s1" top: "s2" top: "s3"
        slice_param { slice_point: 3 slice_point: 5 } }
layer { name: "j" type: "Concat" bottom: "s3" bottom: "s1" bottom: "s2" bottom: "p" top: "j" }
layer { name: "a" type: "Pooling" bottom: "j" top: "a" pooling_param { pool: AVE kernel_size: 3 pad: 1 } }
layer { name: "d" type: "Dropout" bottom: "a" top: "a" }
layer { name: "up" type: "Deconvolution" bottom: "a" top: "up" convolution_param { num_output: 3 kernel_size: 2
        stride: 2 weight_filler { type: "msra" } } }
layer { name: "t" type: "TanH" bottom: "up" top: "up" }
""" + END % "up")
RESIDUAL = (HEAD + CONV % ("c1", "data", "c1", "num_output: 12 kernel_size: 3 pad: 1 bias_term: false") + """
layer { name: "b1" type: "BatchNorm" bottom: "c1" top: "c1" }
layer { name: "s1" type: "Scale" bottom: "c1" top: "c1" scale_param { bias_term: true } }
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
""" + CONV % ("c2", "c1", "c2", "num_output: 12 kernel_size: 1") + """
layer { name: "b2" type: "BatchNorm" bottom: "c2" top: "c2" }
layer { name: "s2" type: "Scale" bottom: "c2" top: "c2" scale_param { bias_term: true } }
layer { name: "sum" type: "Eltwise" bottom: "c1" bottom: "c2" top: "sum" }
layer { name: "r2" type: "ReLU" bottom: "sum" top: "sum" }
layer { name: "g" type: "Pooling" bottom: "sum" top: "g" pooling_param { pool: AVE kernel_size: 5 stride: 4 } }
""" + END % "g")


def net_of(text, phase, precision):
    compute = Compute(precision=precision)
    message = graph.prepare(parse_text(text, caffe_pb2.NetParameter), phase)
    net = build_net(message, Context(phase, load_kernels(1, compute), compute.dtype, Stream(5)))
    rng = np.random.default_rng(3)
    net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
    net.blobs["label"].data[...] = rng.integers(0, 7, 6)
    return net


def far(a, b):
    """The distance of two arrays, as a fraction of the first's length."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.linalg.norm(a - b) / np.linalg.norm(a)


@pytest.mark.parametrize("text", [PLAIN, RESIDUAL], ids=["plain", "residual"])
def test_losses_and_gradients_are_those_of_float32_but_for_rounding(text):
    exact, brain = (net_of(text, TRAIN, precision) for precision in ("fp32", "bf16"))
    most = 0.08 if is_widened() else 0.06  # without instructions for bfloat16 other numbers are rounded
    for _ in range(2):  # the second adds to the gradients of the first
        losses = [net.forward() for net in (exact, brain)]
        assert losses[1] == pytest.approx(losses[0], rel=0.02)
        for net in (exact, brain):
            net.backward()
    assert brain.blobs["c1"].dtype.name == "bfloat16"
    for mine, theirs in zip(exact.params.params, brain.params.params, strict=True):
        assert theirs.blob.dtype == theirs.blob.diff.dtype == np.float32
        if np.abs(mine.blob.diff).max() > 1e-5:
            assert far(mine.blob.diff, theirs.blob.diff) < most, exact.nodes[mine.layer_index].name


def test_layers_without_kernels_for_it_run_in_float32_between_conversions():
    kinds = {node.name: isinstance(node.layer, HostFallback) for node in net_of(PLAIN, TRAIN, "bf16").nodes}
    assert {name for name, wrapped in kinds.items() if wrapped} == {"e", "up", "t", "loss"}


@pytest.mark.parametrize("text", [PLAIN, RESIDUAL], ids=["plain", "residual"])
def test_inference_folds_as_in_float32(text):
    exact, brain = (net_of(text, TEST, precision) for precision in ("fp32", "bf16"))
    for net in (exact, brain):
        for node in net.nodes:
            if node.param.type == "BatchNorm":
                for blob, value in zip(node.layer.blobs, (0.3, 1.7, 1), strict=True):
                    blob.data[...] = value
    losses = [Inference(net).forward() for net in (exact, brain)]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert far(exact.blobs["ip"].data, brain.blobs["ip"].data) < 0.02
    assert brain.forward() == pytest.approx(losses[1], rel=0.02)


def test_without_kernels_of_onednn_plans_compute_in_float32(monkeypatch):
    from scaffe.layers.kernels.cpu.onednn import library

    monkeypatch.setattr(library, "library", lambda: None)
    exact, brain = (net_of(PLAIN, TRAIN, precision) for precision in ("fp32", "bf16"))
    assert brain.forward() == pytest.approx(exact.forward(), rel=0.02)
    for net in (exact, brain):
        net.backward()
    assert far(exact.params.diff, brain.params.diff) < 0.06


def test_an_accuracy_is_not_rounded():
    """Seven of 600, of which bfloat16 would make 0.01165771."""
    message = graph.prepare(parse_text("""
        layer { name: "in" type: "Input" top: "data" top: "label" input_param { shape { dim: 600 dim: 3 }
                shape { dim: 600 } } }
        layer { name: "acc" type: "Accuracy" bottom: "data" bottom: "label" top: "acc" top: "each" }""",
                                       caffe_pb2.NetParameter), TEST)
    compute = Compute(precision="bf16")
    net = build_net(message, Context(TEST, load_kernels(1, compute), compute.dtype, Stream(5)))
    net.blobs["data"].data[...] = np.eye(3)[[2] * 7 + [0] * 593]
    net.blobs["label"].data[...] = 2
    net.forward()
    assert net.blobs["acc"].data == np.float32(7 / 600)
    np.testing.assert_array_equal(net.blobs["each"].data, np.array([0, 0, 7 / 600], np.float32))
