"""The upgrade commands: old files in, today's files out."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.cli.main import main
from scaffe.proto import caffe_pb2

OLD_NET = 'name: "n" input: "x" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4 layers { name: "r" type: RELU ' \
          'bottom: "x" top: "x" }'


def test_net_text(tmp_path, capsys):
    old, new = tmp_path / "old.prototxt", tmp_path / "new.prototxt"
    old.write_text(OLD_NET)
    assert main(["upgrade_net_proto_text", str(old), str(new)]) == 0
    net = text_format.Parse(new.read_text(), caffe_pb2.NetParameter())
    assert ([layer.type for layer in net.layer], len(net.layers), len(net.input)) == (["Input", "ReLU"], 0, 0)
    assert main(["upgrade_net_proto_text", str(new), str(old)]) == 0
    assert "today's form already" in capsys.readouterr().out
    assert old.read_text() == new.read_text()


def test_net_binary_keeps_every_blob(tmp_path):
    old, new = tmp_path / "old.caffemodel", tmp_path / "new.caffemodel"
    net = text_format.Parse(OLD_NET + "force_backward: true", caffe_pb2.NetParameter())
    values = np.arange(6, dtype=np.float32)
    net.layers[0].blobs.add(num=1, channels=1, height=2, width=3, data=values.tolist())
    net.layers[0].blobs.add(double_data=[0.1], diff=[2.0]).shape.dim.append(1)
    old.write_bytes(net.SerializeToString())
    assert main(["upgrade_net_proto_binary", str(old), str(new)]) == 0
    found = caffe_pb2.NetParameter.FromString(new.read_bytes())
    assert (found.name, found.force_backward, [layer.type for layer in found.layer]) == ("n", True, ["Input", "ReLU"])
    assert list(found.layer[1].blobs) == list(net.layers[0].blobs)


def test_solver_text(tmp_path):
    old, new = tmp_path / "old.prototxt", tmp_path / "new.prototxt"
    old.write_text('net: "n.prototxt" solver_type: RMSPROP base_lr: 0.01')
    assert main(["upgrade_solver_proto_text", str(old), str(new)]) == 0
    assert new.read_text() == 'base_lr: 0.01\nnet: "n.prototxt"\ntype: "RMSProp"\n'


@pytest.mark.parametrize(("command", "text", "said"), [
    ("upgrade_net_proto_text", "layers { layer { name: 'l' type: 'cnov' } }",
     "old: layer 'l' is of the old type 'cnov'"),
    ("upgrade_solver_proto_text", "solver_type: SGD type: 'SGD'", "old: the solver gives both"),
    ("upgrade_net_proto_binary", "name: 'x'", "old: truncated, or not a binary NetParameter"),
])
def test_what_cannot_be_upgraded_is_one_line_and_writes_nothing(tmp_path, capsys, command, text, said):
    (tmp_path / "old").write_text(text)
    assert main([command, str(tmp_path / "old"), str(tmp_path / "new")]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
