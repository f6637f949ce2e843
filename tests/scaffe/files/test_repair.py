"""Prototxts of forks and of old versions become ones that build, and each change is said."""

import pytest

from scaffe.cli.main import main
from scaffe.files.repair import repair_net
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text
from scaffe.proto.tree import read_tree, write_tree

TYPES = ["Convolution", "ReLU", "InnerProduct", "SoftmaxWithLoss", "Pooling", "PReLU", "LSTM", "Lstm", "BN",
         "ImageSegData"]


def mended(text):
    """The NetParameter, and the changes."""
    new, changes = repair_net(text, TYPES)
    return parse_text(new, caffe_pb2.NetParameter), changes


@pytest.mark.parametrize(("text", "wanted", "said"), [
    ('layer { name: "p" type: "Pooling" pooling_param { kernel_size: 3\n kernel_size: 2 } }',
     'layer { name: "p" type: "Pooling" pooling_param { kernel_size: 2 } }',
     "line 2: layer 'p': kernel_size is given twice; the last one, 2, counts"),
    ('layer { name: "p" type: "Pooling" '
     "pooling_param { kernel_size: 1 kernel_size: 2 kernel_size: 3 stride: 2 pad: 0 } }",
     'layer { name: "p" type: "NdPooling" pooling_param { kernel_shape { dim: 1 dim: 2 dim: 3 } '
     "stride_shape { dim: 2 dim: 2 dim: 2 } pad_shape { dim: 0 dim: 0 dim: 0 } } }",
     "line 1: layer 'p': Pooling over three axes became NdPooling"),
    ('\ufefflayer { type: "ReLU" }', 'layer { type: "ReLU" }', "line 1: left out the byte-order mark"),
    ('layer { type: "relu" }', 'layer { type: "ReLU" }', 'line 1: type "relu" became "ReLU"'),
    ("layer { type: INNER_PRODUCT }", 'layer { type: "InnerProduct" }',
     'line 1: type INNER_PRODUCT became "InnerProduct"'),
    ('layer { type: "SOFTMAX_LOSS" }', 'layer { type: "SoftmaxWithLoss" }',
     'line 1: type "SOFTMAX_LOSS" became "SoftmaxWithLoss"'),
    ("layers { type: convolution }", "layers { type: CONVOLUTION }", "line 1: type convolution became CONVOLUTION"),
    ("layers { name: 'i' type: 'InnerProduct' blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0 }",
     'layer { name: "i" type: "InnerProduct" param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 } }',
     "line 1: 'layers' 'i' became 'layer'"),
    ("layers { name: 'b' type: BN param: 'x' param: 'y' blobs_lr: 1 blobs_lr: 2 blob_share_mode: PERMISSIVE } "
     "layers { type: SOFTMAX_LOSS }",
     'layer { name: "b" type: "BN" param { name: "x" share_mode: PERMISSIVE lr_mult: 1 } '
     'param { name: "y" lr_mult: 2 } } layer { type: "SoftmaxWithLoss" }', "line 1: 'layers' 'b' became 'layer'"),
    ("layers { type: IMAGE_SEG_DATA }", 'layer { type: "ImageSegData" }',
     'line 1: type IMAGE_SEG_DATA became "ImageSegData"'),
    ('layer { name: "p" type: "Pooling" pooling_param { pool: max } }',
     'layer { name: "p" type: "Pooling" pooling_param { pool: MAX } }', "line 1: layer 'p': pool: max became MAX"),
    ('layer { type: "Pooling" pooling_param { pool: "AVE" global_pooling: TRUE kernel_size: 2.0 } }',
     'layer { type: "Pooling" pooling_param { pool: AVE global_pooling: true kernel_size: 2 } }',
     "line 1: kernel_size: 2.0 became 2"),
    ('layer { type: "Convolution" ConvolutionParam { num_output: "7" } }',
     'layer { type: "Convolution" convolution_param { num_output: 7 } }',
     "line 1: ConvolutionParam became convolution_param"),
    ('layer { name: "x" type: "PReLU" correlation_param { pad: 20 } }', 'layer { name: "x" type: "PReLU" }',
     "line 1: layer 'x': correlation_param left out: LayerParameter has no such field (of the fork for FlowNet 2, "
     "lmb-freiburg/flownet2)"),
    ('layer { name: "c" type: "Convolution" convolution_param { num_output: 2 engine: MKL2017 } }',
     'layer { name: "c" type: "Convolution" convolution_param { num_output: 2 } }',
     "line 1: layer 'c': engine left out: there is no MKL2017, but DEFAULT, CAFFE, CUDNN"),
    ('layer { name: "p" pooling_param { ceil_mode: false } }',
     'layer { name: "p" pooling_param { round_mode: FLOOR } }',
     "line 1: layer 'p': ceil_mode: false became round_mode: FLOOR"),
    ("layers { name: 'd' type: DATA enable: { phase: TEST } }",
     "layers { name: 'd' type: DATA include { phase: TEST } }",
     "line 1: layer 'd': enable became include"),
    ("name: net layer { name: 3 }", 'name: "net" layer { name: "3" }', "line 1: name: net became \"net\""),
])
def test_each_is_mended_and_said(text, wanted, said):
    net, changes = mended(text)
    assert net == parse_text(wanted, caffe_pb2.NetParameter)
    assert said in changes


@pytest.mark.parametrize("text", [
    'layer { type: "LSTM" propagate_down: 0 propagate_down: True } layer { type: "Lstm" }',
    'name: "n" layer { name: "c" type: "Convolution" convolution_param { kernel_size: 3 kernel_size: 1 } }',
    "layers { layer { name: 'c' type: 'conv' num_output: 3 } bottom: 'x' }", "layers { type: RELU }", "# nothing",
    'input: "x" input_dim: [1, 2, 3, 4] layer { type: "Python" python_param { param_str: "a: \'b\'" "c" } }'])
def test_what_needs_nothing_stays_as_it_is(text):
    assert repair_net(text, TYPES) == (text, [])


def test_a_tree_is_written_as_it_was_read():
    text = "a: [1, 2], b < c: 'x' \"y\" d { } > ; e: - 1.5 # f\n g [ { h: x } ]"
    entries = read_tree(text)
    assert [(e.name, e.line) for e in entries] == [("a", 1), ("a", 1), ("b", 1), ("e", 1), ("g", 2)]
    assert write_tree(entries) == ("a: 1\na: 2\nb {\n  c: 'x' \"y\"\n  d {\n  }\n}\ne: -1.5\ng {\n  h: x\n}\n")


def test_the_command_says_what_it_changed_and_what_is_missing(tmp_path, capsys):
    old, new = tmp_path / "old.prototxt", tmp_path / "new.prototxt"
    old.write_text('layer { name: "r" type: "relu" }\nlayer { name: "c" type: "Correlation" }')
    assert main(["upgrade_net_proto_text", str(old), str(new)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [f'{old}: line 1: type "relu" became "ReLU"',
                        f"{old}: layer 'c': there is no layer type 'Correlation' (of the fork for FlowNet 2, "
                        "lmb-freiburg/flownet2)"]
    net = parse_text(new.read_text(), caffe_pb2.NetParameter)
    assert [layer.type for layer in net.layer] == ["ReLU", "Correlation"]


def test_a_net_that_needs_a_fork_names_it(tmp_path, capsys):
    net = tmp_path / "n.prototxt"
    net.write_text('layer { name: "c" type: "Correlation" top: "c" }')
    assert main(["time", "-model", str(net)]) == 1
    said = capsys.readouterr().err
    assert "unknown layer type 'Correlation' (of the fork for FlowNet 2, lmb-freiburg/flownet2)\n" in said
