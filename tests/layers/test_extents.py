"""A blob that is given another shape behind a layer's back: as in Caffe, or one line; no kernel runs past its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.errors import LayerError, UserError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TRAIN
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.specs import ConvSpec, Fused, LrnSpec, NormSpec, PoolSpec
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.net import Net
from scaffe.proto import caffe_pb2

NET = """
    layer { name: "in" type: "Input" top: "x" top: "label"
            input_param { shape { dim: 2 dim: 3 dim: 9 dim: 9 } shape { dim: 2 } } }
    layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
            convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
    layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
    layer { name: "scale" type: "Scale" bottom: "bn" top: "bn" scale_param { bias_term: true } }
    layer { name: "relu" type: "ReLU" bottom: "bn" top: "bn" }
    layer { name: "pool" type: "Pooling" bottom: "bn" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
    layer { name: "lrn" type: "LRN" bottom: "pool" top: "lrn" }
    layer { name: "ip" type: "InnerProduct" bottom: "lrn" top: "ip"
            inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""
WRITTEN = ("conv", "bn", "pool", "lrn", "ip", "loss")
SHAPES = ((1,), (50, 50, 50), (1, 1, 1, 1), (0,), ())


@pytest.fixture
def net() -> Net:
    """A net that has run once."""
    message = text_format.Parse(NET, caffe_pb2.NetParameter())
    net = build_net(graph.prepare(message, TRAIN), Context(TRAIN, cpu, rng=Stream(1)))
    net.blobs["x"].data = np.random.default_rng(2).normal(size=(2, 3, 9, 9))
    net.forward_backward()
    return net


@pytest.mark.parametrize("name", WRITTEN)
def test_a_top_that_was_reshaped_is_shaped_anew(net: Net, name: str) -> None:
    wanted = {key: blob.shape for key, blob in net.blobs.items()}
    loss, diff = net.forward(), net.node("conv").layer.blobs[0].diff.copy()
    for shape in SHAPES:
        net.blobs[name].reshape(shape)
        net.clear_param_diffs()
        assert net.forward_backward() == loss
        assert {key: blob.shape for key, blob in net.blobs.items()} == wanted
        np.testing.assert_array_equal(net.node("conv").layer.blobs[0].diff, diff)


@pytest.mark.parametrize("name", WRITTEN)
def test_backward_refuses_what_forward_did_not_make(net: Net, name: str) -> None:
    net.blobs[name].reshape((7, 7))
    with pytest.raises(UserError, match=r"layer '\w+' \(\w+\): a blob was reshaped after forward"):
        net.backward()


def test_reshape_and_backward_name_the_layer(net: Net) -> None:
    net.blobs["x"].reshape((2, 3, 1, 1))
    with pytest.raises(UserError, match=r"layer 'conv' \(Convolution\): kernel \(3, 3\) does not fit"):
        net.reshape()


@pytest.mark.parametrize("share", ["share_data", "share_diff"])
def test_memory_that_is_too_short_for_a_blob(share: str) -> None:
    with pytest.raises(LayerError, match="5 elements of memory are too few"):
        getattr(Blob((6,)), share)(Blob((5,)))
    for bind in ("bind_data", "bind_diff"):
        with pytest.raises(LayerError, match="too few"):
            getattr(Blob((6,)), bind)(np.zeros(5))


# -- the kernels themselves: each array in turn is one row (or one element) short
CONV = ConvSpec((2, 4, 6, 6), 3, (3, 3), (1, 1), (1, 1), (1, 1), bias=True)
POOL = PoolSpec((2, 4, 6, 6), "MAX", (2, 2), (2, 2), (0, 0))
WIDE = np.dtype(np.float64)


def flat(n_elems: int, dtype: Any = np.float32) -> np.ndarray:
    """Zeros."""
    return np.zeros(n_elems, dtype)


def rows(n_rows: int = 5, n_columns: int = 3) -> np.ndarray:
    """A matrix."""
    return np.ones((n_rows, n_columns), np.float32)


def calls() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Every pass of every plan with arrays that fit, and every kernel that takes several arrays."""
    n_in, n_out, n_weights = 2 * 4 * 36, 2 * 3 * 36, 3 * 4 * 9
    found: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
    for kind, dtype in (("oneDNN", np.dtype(np.float32)), ("portable", WIDE)):
        a = (lambda d: lambda n: flat(n, d))(dtype)
        conv, product = cpu.convolution(replace(CONV, dtype=dtype)), cpu.inner_product(4, 3, 5, dtype=dtype)
        w = a(n_weights).reshape(3, 4, 3, 3)
        found |= {
            f"{kind} convolution": (conv.forward, (a(n_in), w, a(3), a(n_out))),
            f"{kind} convolution data": (conv.backward_data, (a(n_out), w, a(n_in))),
            f"{kind} convolution weights": (conv.backward_weights, (a(n_in), a(n_out), w, a(3))),
            f"{kind} product": (product.forward, (a(20), a(15), a(3), a(12))),
            f"{kind} product data": (product.backward_data, (a(12), a(15), a(20))),
            f"{kind} product weights": (product.backward_weights, (a(20), a(12), a(15).reshape(3, 5), a(3)))}
        for method in ("MAX", "AVE"):
            pool = cpu.pooling(replace(POOL, method=method, dtype=dtype))
            found[f"{kind} {method}"] = pool.forward, (a(n_in), a(2 * 4 * 9))
            found[f"{kind} {method} back"] = pool.backward, (a(2 * 4 * 9), a(n_in))
    for within in (False, True):
        lrn = cpu.lrn(LrnSpec((2, 4, 6, 6), 3, 1.0, 0.75, 1.0, within))
        found[f"LRN {within}"] = lrn.forward, (flat(n_in), flat(n_in))
        found[f"LRN {within} back"] = lrn.backward, (flat(n_in),) * 4
    norm, sums = cpu.batch_norm(NormSpec((5, 3), 1e-5, 0.9)), [flat(3), flat(3), flat(1)]
    fused = Fused(flat(3) + 2, flat(3), 0.1)
    found |= {
        "norm": (lambda x, y, k: norm.forward_train(x, y, sums, fused, k), (rows(), rows(), rows())),
        "norm fixed": (lambda x, y, k: norm.forward_fixed(x, y, sums, fused, k), (rows(), rows(), rows())),
        "norm scale": (lambda s, b: norm.forward_train(rows(), rows(), sums, Fused(s, b)), (flat(3), flat(3))),
        "norm back": (lambda x, gy, gx: norm.backward(x, gy, gx, fused), (rows(), rows(), rows())),
        "normalized": (norm.normalized, (rows(), rows())),
        "relu": (lambda x, y: cpu.relu_forward(x, y, 0.1), (flat(9), flat(9))),
        "rectify": (lambda x, y: cpu.relu_forward(x, y, 0), (flat(9), flat(9))),
        "relu back": (lambda y, gy, gx: cpu.relu_backward(y, gy, gx, 0.1), (flat(9), flat(9), flat(9))),
        "signs": (cpu.save_sign_mask, (flat(4097), flat(256, np.uint32))),
        "signs back": (lambda s, gy, gx: cpu.relu_backward_mask(s, gy, gx, 0.1),
                       (flat(256, np.uint32), flat(4097), flat(4097))),
        "add relu": (lambda a, b, y: cpu.add_relu(a, b, y, 0.1), (flat(9), flat(9), flat(9))),
        "sum": (lambda *xs: cpu.add_up(xs[:-1], xs[-1]), (flat(9), flat(9), flat(9), flat(9))),
        "mask": (lambda x, m, y: cpu.mask_scale(x, m, 2.0, y), (flat(9), flat(9, bool), flat(9))),
        "softmax": (cpu.softmax_rows, (rows(), rows())),
        "softmax back": (cpu.softmax_rows_back, (rows(), rows(), rows())),
        "scale": (cpu.scale_rows, (rows(), flat(3), flat(3), rows(), rows())),
        "scale sums": (cpu.scale_sums, (rows(), rows()))}
    return found


CALLS = calls()


@pytest.mark.parametrize("name", CALLS)
def test_an_array_that_is_too_short(name: str) -> None:
    call, arrays = CALLS[name]
    call(*arrays)
    for i, array in enumerate(arrays):
        short = np.ascontiguousarray(array.reshape(-1)[:-1] if array.ndim != 2 else array[:-1])
        with pytest.raises(ValueError):  # LayerError is one; NumPy's own is where reshape or broadcasting looks
            call(*arrays[:i], short, *arrays[i + 1:])
