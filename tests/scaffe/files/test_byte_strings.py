"""Strings that are no UTF-8, in prototxts, trained nets and the names of files: the bytes stay."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from scaffe import Net
from scaffe.errors import UserError, one_line
from scaffe.files import StoredLayer, read_model, read_state, write_model, write_text
from scaffe.nets import graph
from scaffe.proto import caffe_pb2
from scaffe.proto.byte_text import bytes_of, path_of, shown, text_of
from scaffe.proto.raw_strings import wire_form
from scaffe.proto.text import ProtoError, parse_binary, parse_text, read_message
from scaffe.training.checkpoint import newest_state
from tests.scaffe import runs

# Messages in hexadecimal, kind and text, and what protoc 7.36 (grpcio-tools 1.85.1) encoded for each.
PROTOC = json.loads((Path(__file__).parents[2] / "reference" / "protoc_bytes.json").read_text())
GBK = "数据".encode("gbk")  # b"\xca\xfd\xbe\xdd"
OURS = "\uef80"  # a character of the kind that stands for a byte


def test_bytes_come_back():
    rng = np.random.default_rng(7)
    for raw in [b"", GBK, OURS.encode(), "é".encode() + b"\xe9", *(rng.bytes(n) for n in range(200))]:
        assert bytes_of(text_of(raw)) == raw
        text_of(raw).encode()  # what protobuf asks of a string
        assert os.fsencode(path_of(text_of(raw))) == raw
    assert text_of("é \U0001f600".encode()) == "é \U0001f600"
    assert shown(f"{text_of(GBK)}é{os.fsdecode(GBK)}") == r"\xca\xfd\xbe\xddé\xca\xfd\xbe\xdd"


@pytest.mark.parametrize(("kind", "text", "encoded"), PROTOC)
def test_texts_are_read_as_by_protoc(kind, text, encoded):
    message = parse_text(text_of(bytes.fromhex(text)), getattr(caffe_pb2, kind))
    assert wire_form(message) == bytes.fromhex(encoded)
    assert parse_binary(bytes.fromhex(encoded), type(message), "") == message


def test_text_is_written_with_its_bytes(tmp_path):
    message = caffe_pb2.LayerParameter(name=text_of(b'"' + GBK), top=["é", text_of(b"\xff"), OURS])
    write_text(tmp_path / "l.prototxt", message)
    assert b'name: "\\"' + GBK + b'"' in (tmp_path / "l.prototxt").read_bytes()
    again = read_message(tmp_path / "l.prototxt", caffe_pb2.LayerParameter)
    assert again.name == message.name
    assert again.top[:2] == message.top[:2]


def test_mistakes_beside_such_bytes(tmp_path):
    (tmp_path / "l.prototxt").write_bytes(b"# \xe9\nname: '\xe9' bottm: '\xff'")
    with pytest.raises(ProtoError, match=r"l.prototxt:2:\d+: LayerParameter has no field 'bottm'; did you mean"):
        read_message(tmp_path / "l.prototxt", caffe_pb2.LayerParameter)
    (tmp_path / "l.prototxt").write_bytes(b"name: \xe9")
    with pytest.raises(ProtoError, match=r"2?1:7: byte 0xe9 outside of strings and comments"):
        read_message(tmp_path / "l.prototxt", caffe_pb2.LayerParameter)


@pytest.mark.parametrize("ending", ["caffemodel", "caffemodel.h5"])
def test_layers_keep_their_names_in_trained_nets(tmp_path, ending):
    names = [GBK, b"a/\xff", b"a/" + OURS.encode(), "é".encode(), b"a/plain"]
    layers = [StoredLayer(caffe_pb2.LayerParameter(name=text_of(name), type="Bias"), [np.full(3, i, np.float32)])
              for i, name in enumerate(names)]
    path = tmp_path / f"net.{ending}"
    if ending == "caffemodel.h5":
        pytest.importorskip("h5py")
    write_model(path, text_of(GBK), layers)
    found = {name: blobs[0].tolist() for name, _, blobs in read_model(path)}
    assert found == {text_of(name): [i] * 3 for i, name in enumerate(names)}
    if ending == "caffemodel":  # field 1 of a LayerParameter, and of the net
        content = path.read_bytes()
        assert all(b"\n" + bytes([len(name)]) + name + b"\x12\x04Bias" in content for name in names)
        assert content.startswith(b"\n\x04" + GBK)


def test_a_run_in_a_folder_of_such_a_name(tmp_path):
    """Solver, net, list, images' folder, snapshots and the layer's name."""
    cv2 = pytest.importorskip("cv2")
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + GBK))
    folder.mkdir()
    image = cv2.imencode(".png", np.arange(48, dtype=np.uint8).reshape(4, 4, 3))[1].tobytes()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.png")).write_bytes(image)
    (folder / "list").write_bytes(b"\xff.png 1\n\xff.png 0\n")
    (folder / "net.prototxt").write_bytes(b"""
layer { name: "d" type: "ImageData" top: "d" top: "l"
  image_data_param { source: "%s/list" root_folder: "\\312\\375%s/" batch_size: 2 } }
layer { name: "%s" type: "InnerProduct" bottom: "d" top: "s" inner_product_param { num_output: 2 } }
layer { type: "SoftmaxWithLoss" bottom: "s" bottom: "l" name: "loss" top: "loss" }""" % (GBK, GBK[2:], GBK))
    (folder / "s.prototxt").write_bytes(
        b"net: '%s/net.prototxt' base_lr: 1e-5 lr_policy: 'fixed' max_iter: 2 display: 1 random_seed: 1" % GBK)
    solver = os.fsdecode(GBK + b"/s.prototxt")
    first = runs.run(tmp_path, "train", "-solver", solver, "-log_dir", str(tmp_path))
    assert first.returncode == 0, first.stderr
    assert re.search(r"Snapshotting to binary proto file \\xca\\xfd\\xbe\\xdd/s_iter_2.caffemodel", first.stderr)
    assert r"\xca\xfd\xbe\xdd/s_iter_2.caffemodel" in (tmp_path / "caffe.INFO").read_text()
    content = (folder / "s_iter_2.caffemodel").read_bytes()
    assert b"\n\x04" + GBK + b"\x12\x0cInnerProduct" in content
    assert b"\x12\x18" + GBK + b"/s_iter_2.caffemodel" in (folder / "s_iter_2.solverstate").read_bytes()
    prefix = graph.read_solver(tmp_path / solver).snapshot_prefix
    assert newest_state(prefix) == folder / "s_iter_2.solverstate"
    assert os.fsencode(read_state(newest_state(prefix)).learned_net) == GBK + b"/s_iter_2.caffemodel"


def test_a_missing_file_is_one_line(tmp_path):
    (tmp_path / "net.prototxt").write_bytes(
        b"layer { name: '\xff' type: 'Data' top: 'd' data_param { source: '\xfe/none' batch_size: 1 } }")
    with pytest.raises(UserError) as error:
        Net(str(tmp_path / "net.prototxt"), 0)
    assert re.search(r"layer '\\xff' \(Data\): \\xfe/none: no such file", one_line(error.value))
