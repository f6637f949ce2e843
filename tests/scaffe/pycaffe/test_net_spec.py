"""Nets written in Python, as pycaffe's users write them; expected prototxt written by hand."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.net_spec import NetSpec, to_proto
from scaffe.net_spec import layers as L
from scaffe.net_spec import params as P
from scaffe.proto import caffe_pb2


def net(text):
    return text_format.Parse(text, caffe_pb2.NetParameter())


def test_named_tops_and_options_of_every_kind():
    n = NetSpec()
    n.data, n.label = L.Data(source="db", backend=P.Data.LMDB, batch_size=4, ntop=2,
                             include={"phase": caffe_pb2.TRAIN}, transform_param={"scale": 0.5, "mean_value": [1, 2]})
    n["a/b"] = L.Convolution(n.data, kernel_size=[3, 5], stride=2, num_output=np.int64(7), bias_term=False,
                             weight_filler={"type": "xavier"},
                             param=[{"lr_mult": 1}, {"lr_mult": 2, "decay_mult": 0}])
    n.relu = L.ReLU(n["a/b"], in_place=True)
    n.loss = L.SoftmaxWithLoss(n.relu, n.label, loss_weight=3, loss_param={"ignore_label": 255})
    assert n.to_proto() == net("""
        layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
                transform_param { scale: 0.5 mean_value: 1 mean_value: 2 }
                data_param { source: "db" backend: LMDB batch_size: 4 } }
        layer { name: "a/b" type: "Convolution" bottom: "data" top: "a/b"
                param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
                convolution_param { kernel_size: 3 kernel_size: 5 stride: 2 num_output: 7 bias_term: false
                                    weight_filler { type: "xavier" } } }
        layer { name: "relu" type: "ReLU" bottom: "a/b" top: "a/b" }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "a/b" bottom: "label" top: "loss" loss_weight: 3
                loss_param { ignore_label: 255 } }""")


def test_automatic_names_count_by_type():
    data, label = L.DummyData(shape={"dim": 3}, ntop=2)
    hidden = L.ReLU(L.ReLU(L.Power(data, power=2)), in_place=True)
    assert to_proto(L.EuclideanLoss(hidden, label)) == net("""
        layer { name: "DummyData1" type: "DummyData" top: "DummyData1" top: "DummyData2"
                dummy_data_param { shape { dim: 3 } } }
        layer { name: "Power1" type: "Power" bottom: "DummyData1" top: "Power1" power_param { power: 2 } }
        layer { name: "ReLU1" type: "ReLU" bottom: "Power1" top: "ReLU1" }
        layer { name: "ReLU2" type: "ReLU" bottom: "ReLU1" top: "ReLU1" }
        layer { name: "EuclideanLoss1" type: "EuclideanLoss" bottom: "ReLU1" bottom: "DummyData2"
                top: "EuclideanLoss1" }""")


def test_layers_without_tops_and_only_what_is_needed():
    n = NetSpec()
    used, unused = L.DummyData(shape={"dim": 3}), L.DummyData(shape={"dim": 4})
    n.quiet = L.Silence(used, ntop=0)
    assert n.to_proto() == net("""
        layer { name: "DummyData1" type: "DummyData" top: "DummyData1" dummy_data_param { shape { dim: 3 } } }
        layer { name: "quiet" type: "Silence" bottom: "DummyData1" }""")
    assert len(unused.to_proto().layer) == 1


def test_deep_nets_are_written():
    top = L.DummyData(shape={"dim": 1})
    for _ in range(3000):
        top = L.ReLU(top)
    assert top.to_proto().layer[-1].name == "ReLU3000"


def test_mistakes():
    with pytest.raises(TypeError, match=r"^Silence input 0 is not a Top \(type is <class 'tuple'>\)$"):
        L.Silence(L.DummyData(ntop=2), ntop=0)
    with pytest.raises(AttributeError, match="Convolution has no option 'kernl_size'; did you mean 'kernel_size'?"):
        L.Convolution(kernl_size=3).to_proto()
    with pytest.raises(AttributeError, match="no top 'missing'"):
        _ = NetSpec().missing
    assert not hasattr(NetSpec(), "missing")
