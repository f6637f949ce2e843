"""ReLUs that keep a bit of each element: the bits against those of a naive loop, gradients against Caffe's formula."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.extents import WORD, n_words
from scaffe.memory.problem.activations import use_sign_masks
from scaffe.memory.problem.costs import kept_by_layers
from scaffe.memory.problem.tensors import activation_tensors
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2
from tests.reference import kernels as reference

N_ELEMS = (0, 1, 127, 128, 129, 4095, 4096, 4097, 3 * 4096 + 200, 300_001)
INPUT = """force_backward: true
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 3 dim: 4 dim: 40 dim: 41 } } }"""
CONVOLUTION = """layer { name: "%s" type: "Convolution" bottom: "%s" top: "%s"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "gaussian" std: 1 } } }"""


def relu(bottom: str, top: str, slope: float = 0.0) -> str:
    return (f'layer {{ name: "{bottom} {top}" type: "ReLU" bottom: "{bottom}" top: "{top}" relu_param {{ '
            f'negative_slope: {slope} }} }}')


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_elems", N_ELEMS)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_bits_and_gradients(n_elems: int, dtype: type, n_threads: int) -> None:
    rng = np.random.default_rng(n_elems)
    y, gy = (rng.standard_normal(n_elems).astype(dtype) for _ in range(2))
    y[::5], y[1::7], y[2::11] = 0, np.nan, -0.0
    signs = np.full(n_words(n_elems), 7, WORD)
    cpu.set_threads(n_threads)
    try:
        cpu.save_sign_mask(y, signs)
        np.testing.assert_array_equal(signs, reference.sign_words(y))
        for slope in (0.0, 0.25):
            expected = np.where(y > 0, gy, dtype(slope) * gy)
            inplace, apart = gy.copy(), np.full_like(gy, 7)
            cpu.relu_backward_mask(signs, inplace, inplace, slope)
            cpu.relu_backward_mask(signs, gy, apart, slope)
            np.testing.assert_array_equal(inplace, expected)
            np.testing.assert_array_equal(apart, expected)
    finally:
        cpu.set_threads(1)


def test_bfloat16() -> None:
    numbers = np.random.default_rng(1).standard_normal(5000).astype(np.float32)
    halves = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    signs, gx = np.zeros(n_words(5000), WORD), halves.copy()
    from ml_dtypes import bfloat16

    cpu.save_sign_mask(halves.view(bfloat16), signs)
    np.testing.assert_array_equal(signs, reference.sign_words(numbers))
    cpu.relu_backward_mask(signs, gx.view(bfloat16), gx.view(bfloat16), 0.0)
    np.testing.assert_array_equal(gx & 0x7fff, np.where(numbers > 0, halves, 0) & 0x7fff)


def built(*layers: str) -> object:
    param = text_format.Parse("\n".join((INPUT, *layers)), caffe_pb2.NetParameter())
    return build_net(graph.prepare(param, 0), Context(0, cpu, rng=Stream(1)))


def readers(net: object, name: str) -> tuple[int, ...]:
    """The steps of backward that read a blob's data."""
    return next(each.tensor.backward for each in activation_tensors(net)
                if each.tensor.name == name and not each.is_diff)


POOLING = 'layer { name: "p" type: "Pooling" bottom: "%s" top: "p" pooling_param { kernel_size: 3 stride: 2 } }'
NETS = {  # layers → by blob, whether somebody still reads its data in backward, once signs are kept
    "fused": ((CONVOLUTION % ("a", "x", "a"), relu("a", "a"), POOLING % "a"), {"a": False}),
    "leaky": ((CONVOLUTION % ("a", "x", "a"), relu("a", "a", 0.25), POOLING % "a"), {"a": False}),
    "out of place": ((CONVOLUTION % ("a", "x", "a"), relu("a", "b"), POOLING % "b"), {"a": False, "b": False}),
    "negative slope": ((CONVOLUTION % ("a", "x", "a"), relu("a", "b", -0.5), POOLING % "b"), {"a": True}),
    "read by a convolution": ((CONVOLUTION % ("a", "x", "a"), relu("a", "a"), CONVOLUTION % ("d", "a", "d"),
                               POOLING % "d"), {"a": True, "d": False}),
    "two of one": ((CONVOLUTION % ("a", "x", "a"), relu("a", "b"), relu("a", "c"), 'layer { name: "s" type: "Eltwise" '
                    'bottom: "b" bottom: "c" top: "s" }', POOLING % "s"), {"a": False}),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("unfused", [False, True])
def test_a_net_computes_the_same_bits(name: str, unfused: bool) -> None:
    layers, is_read = NETS[name]
    plain, kept = built(*layers), built(*layers)
    before = kept_by_layers(kept)
    use_sign_masks(kept)
    n_relus = sum(getattr(node.layer, "uses_sign_mask", False) for node in kept.nodes)
    assert (kept_by_layers(kept) - before > n_relus * kept.blobs["x"].n_elems // 8) == bool(n_relus)
    x = np.random.default_rng(3).standard_normal((3, 4, 40, 41)).astype(np.float32)
    for net in (plain, kept):
        net.unfused = unfused
        for sign in (1, -1):  # the second pass's signs, not the first's
            net.blobs["x"].data[...] = sign * x
            net.forward()
            top = net.blobs[net.output_names[0]]
            top.diff[...] = np.random.default_rng(4).standard_normal(top.shape)
            net.clear_param_diffs()
            net.backward()
    np.testing.assert_array_equal(kept.params.diff, plain.params.diff)
    np.testing.assert_array_equal(kept.blobs["x"].diff, plain.blobs["x"].diff)
    assert np.abs(kept.params.diff).max() > 0
    assert {blob: bool(readers(kept, blob)) for blob in is_read} == is_read
    keepers = {node.bottom_names[0] for node in kept.nodes if getattr(node.layer, "uses_sign_mask", False)}
    assert not any(is_read.get(blob) for blob in keepers)  # else the bits are of no use
