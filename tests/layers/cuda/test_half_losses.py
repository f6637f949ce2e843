"""Losses of half-precision nets: what they add up is too much for float16, or for bfloat16's eight bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cuda
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2

N, C, FAR = 2, 3000, 8.0
BFLOAT16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
LOSSES = {  # bottoms of a = 8, b = 0, labels 1, mixed half 1 and half 0: closed forms
    "EuclideanLoss": ("a b", C * FAR**2 / 2), "L1Loss": ("a b", C * FAR), "HingeLoss": ("a label", (C - 1) * (1 + FAR)),
    "ContrastiveLoss": ("a b label", C * FAR**2 / 2), "SigmoidCrossEntropyLoss": ("a b", C * np.logaddexp(0, FAR)),
    "SigmoidCrossEntropyBalanceLoss": ("a mixed", C / 2 * np.logaddexp(0, FAR) - C / 4 * FAR),
    "Reduction": ("a", N * C * FAR)}


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
@pytest.mark.parametrize("kind", LOSSES)
def test_sums_are_float32(cp: Any, kind: str, dtype: np.dtype) -> None:
    bottoms, expected = LOSSES[kind]
    net = f"""layer {{ name: "in" type: "Input" top: "x" top: "y" top: "label" top: "mixed" input_param {{
        shape {{ dim: {N} dim: {C} }} shape {{ dim: {N} dim: {C} }} shape {{ dim: {N} }}
        shape {{ dim: {N} dim: {C} }} }} }}
      layer {{ name: "a" type: "ReLU" bottom: "x" top: "a" }} layer {{ name: "b" type: "ReLU" bottom: "y" top: "b" }}
      layer {{ name: "loss" type: "{kind}" {" ".join(f'bottom: "{name}"' for name in bottoms.split())} top: "loss"
        loss_weight: 1 }}"""
    message = graph.prepare(text_format.Parse(net, caffe_pb2.NetParameter()), 0)
    built = build_net(message, Context(0, cuda, dtype, Stream(1)))
    for name, value in (("x", FAR), ("y", 0), ("label", 1)):
        built.blobs[name].data[...] = value
    if "mixed" in bottoms:
        built.blobs["mixed"].data[:, :C // 2] = 1
    built.forward()
    assert float(built.blobs["loss"].data) == pytest.approx(expected, rel=4e-3 if kind == "Reduction" else 1e-5)
