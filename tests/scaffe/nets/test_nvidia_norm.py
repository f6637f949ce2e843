"""NVIDIA/caffe's BatchNorm with a scale and bias of its own, and what it trained."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe
from scaffe.cli.main import main
from scaffe.files.upgrade import upgrade_net
from scaffe.proto import caffe_pb2

NORM = """layer {{ name: "bn" type: "BatchNorm" bottom: "data" top: "bn" {param}
    batch_norm_param {{ eps: 0.001 use_global_stats: false {options} }} }}"""
NET = """layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 2 dim: 3 dim: 4 dim: 5 }} }} }}
{norm}
layer {{ name: "relu" type: "ReLU" bottom: "bn" top: "bn" }}"""
FILLER = 'scale_filler { type: "constant" value: 2 } bias_filler { type: "constant" value: 0.5 }'


def parsed(text):
    return text_format.Parse(text, caffe_pb2.NetParameter())


@pytest.mark.parametrize(("options", "param", "scale", "kept"), [
    ("scale_bias: true", "", "scale_param { bias_term: true }", ""),
    (FILLER, "", 'scale_param { bias_term: true filler { type: "constant" value: 2 } '
                 'bias_filler { type: "constant" value: 0.5 } }', ""),
    ("scale_bias: true", "param { lr_mult: 1 } param { } param { } param { lr_mult: 3 } param { lr_mult: 4 }",
     "param { lr_mult: 3 } param { lr_mult: 4 } scale_param { bias_term: true }",
     3 * "param { lr_mult: 0 decay_mult: 0 } ")])
def test_it_becomes_a_batch_norm_and_a_scale(options, param, scale, kept):
    rules = ' include { phase: TRAIN }'
    new = upgrade_net(parsed(NORM.format(options=options, param=param + rules)))
    assert new == parsed(f'layer {{ name: "bn" type: "BatchNorm" bottom: "data" top: "bn" {kept} {rules} '
                         "batch_norm_param { eps: 0.001 } } "
                         f'layer {{ name: "bn_scale" type: "Scale" bottom: "bn" top: "bn" {scale} {rules} }}')


def test_one_without_a_scale_stays_as_it_is():
    net = parsed(NORM.format(options="scale_bias: false", param=""))
    assert upgrade_net(net) == net


def test_weights_that_it_trained(tmp_path):
    rng = np.random.default_rng(2)
    numbers = [rng.normal(size=3), rng.uniform(1, 2, 3), np.ones(1), rng.normal(size=3), rng.normal(size=3)]
    trained = parsed(NORM.format(options="scale_bias: true", param=""))
    for values in numbers:
        trained.layer[0].blobs.add(data=values).shape.dim.append(len(values))
    (tmp_path / "trained.caffemodel").write_bytes(trained.SerializeToString())
    (tmp_path / "net.prototxt").write_text(NET.format(norm=NORM.format(options="scale_bias: true", param="")))
    net = scaffe.Net(str(tmp_path / "net.prototxt"), str(tmp_path / "trained.caffemodel"), scaffe.TEST)
    net.blobs["data"].data[...] = x = rng.normal(size=(2, 3, 4, 5))
    net.forward()
    mean, variance, _, scale, bias = (values.reshape(-1, 1, 1) for values in numbers)
    expected = np.maximum((x - mean) / np.sqrt(variance + 0.001) * scale + bias, 0)
    np.testing.assert_allclose(net.blobs["bn"].data, expected, atol=1e-6)


def test_the_command_says_so(tmp_path, capsys):
    (tmp_path / "old.prototxt").write_text(NET.format(norm=NORM.format(options=FILLER, param="")))
    assert main(["upgrade_net_proto_text", str(tmp_path / "old.prototxt"), str(tmp_path / "new.prototxt")]) == 0
    assert "layer 'bn': its scale and bias became a Scale layer, 'bn_scale'" in capsys.readouterr().out
