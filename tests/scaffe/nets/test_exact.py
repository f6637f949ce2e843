"""Labels keep their values in half-precision nets."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.layer import Context
from scaffe.layers.base.random import Stream
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2
from tests import pretend

NET = """layer { name: "in" type: "Input" top: "x" top: "label" top: "target" input_param { shape { dim: 2 dim: 1000 }
  shape { dim: 2 } shape { dim: 2 dim: 1000 } } }
layer { name: "f" type: "Flatten" bottom: "x" top: "f" }
layer { name: "acc" type: "Accuracy" bottom: "f" bottom: "label" top: "acc" }
layer { name: "same" type: "EuclideanLoss" bottom: "f" bottom: "x" top: "same" }
layer { name: "far" type: "EuclideanLoss" bottom: "f" bottom: "target" top: "far" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "f" bottom: "label" top: "loss" }"""


def prepared():
    return graph.prepare(text_format.Parse(NET, caffe_pb2.NetParameter()), 0)


def test_labels_and_what_splits_make_of_them_are_exact():
    takes = {"Accuracy": (1,), "EuclideanLoss": (1, 2), "SoftmaxWithLoss": (1, 2)}
    exact = graph.exact_blobs(prepared().layer, lambda kind: takes.get(kind, ()))
    assert {name.partition("_")[0] for name in exact} == {"label", "target"}  # x is an input too
    assert len(exact) == 4  # label, its two copies, target


@pretend.needs_compiler
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_large_labels_are_right_in_half_precision(monkeypatch, kind):
    cupy = pretend.install(monkeypatch)
    from scaffe.layers.kernels import cuda

    dtype = np.dtype(np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16)
    net = build_net(prepared(), Context(0, cuda, dtype, Stream(1)))
    scores = np.zeros((2, 1000), np.float32)
    scores[0, 999], scores[1, 515] = 4, 4
    net.blobs["x"].data[...] = cupy.asarray(scores, dtype)
    net.blobs["label"].data[...] = cupy.asarray(np.array([999, 515], np.float32))
    net.blobs["target"].data[...] = 0
    net.forward()
    assert float(net.blobs["acc"].data) == 1
    wanted = -np.log(np.exp(4) / (np.exp(4) + 999))
    assert float(net.blobs["loss"].data) == pytest.approx(wanted, rel=2e-2)
    net.backward()
