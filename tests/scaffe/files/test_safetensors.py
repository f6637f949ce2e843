"""Weights in safetensors files, beside a reader and a writer of the format in a few lines."""

import json
import struct

import numpy as np
import pytest

import scaffe as caffe
from scaffe.cli import main as cli
from scaffe.errors import UserError
from scaffe.files import StoredLayer, model_layers, read_model, write_model
from scaffe.proto import caffe_pb2
from tests.scaffe.pycaffe.pycaffe_nets import pixels, small

pytest.importorskip("safetensors")
DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I32": np.int32, "BF16": np.uint16}


def parsed(path):
    """By name, the array as the format says: the header's length, the header, the values."""
    content = path.read_bytes()
    n_bytes, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + n_bytes])
    about = header.pop("__metadata__", {})
    values = content[8 + n_bytes:]
    return {name: np.frombuffer(values[slice(*told["data_offsets"])], DTYPES[told["dtype"]]).reshape(told["shape"])
            for name, told in header.items()}, about


def packed(arrays):
    """A file's content, of (dtype, array) by name."""
    header, values = {}, b""
    for name, (dtype, array) in arrays.items():
        raw = np.ascontiguousarray(array, DTYPES[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(np.shape(array)), "data_offsets": [len(values),
                                                                                        len(values) + len(raw)]}
        values += raw
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + values


def stored(name, *blobs, shared=()):
    return StoredLayer(caffe_pb2.LayerParameter(name=name, type="Convolution"), blobs, (), frozenset(shared))


def test_blobs_are_tensors_called_by_layer_and_number(tmp_path):
    path, rng = tmp_path / "n.safetensors", np.random.default_rng(0)
    weight, bias, scalar = (rng.random(shape, np.float32) for shape in ((3, 2, 1, 5), (3,), ()))
    channels_last = np.moveaxis(rng.random((3, 1, 5, 2), np.float32), -1, 1)
    write_model(path, "netz", [stored("data"), stored("a/b.c", weight, bias), stored("\u00fc", channels_last, scalar),
                               stored("twin", bias, weight, shared={0})])
    arrays, about = parsed(path)
    assert {name: array.shape for name, array in arrays.items()} == {
        "a/b.c.0": (3, 2, 1, 5), "a/b.c.1": (3,), "\u00fc.0": (3, 2, 1, 5), "\u00fc.1": (), "twin.1": (3, 2, 1, 5)}
    assert (arrays["a/b.c.0"] == weight).all()
    assert (arrays["\u00fc.0"] == channels_last).all()
    assert (about["format"], about["net"]) == ("caffe", "netz")
    layers = {name: blobs for name, _, blobs in read_model(path)}
    assert list(map(len, (layers["a/b.c"], layers["\u00fc"], layers["twin"]))) == [2, 2, 2]
    assert layers["twin"][0] is None
    assert (layers["a/b.c"][1] == bias).all()


def test_every_float_type_is_read(tmp_path):
    """1.5 and -2 are the same in all; a bfloat16 is a float32's upper half; doubles beyond float32 are infinite."""
    pytest.importorskip("ml_dtypes")
    halves = np.array([1.5, -2], np.float32).view(np.uint32) >> 16
    (tmp_path / "n.safetensors").write_bytes(packed({
        "a.0": ("F64", [1.5, 1e300]), "a.1": ("F32", [[1.5], [-2]]), "b.0": ("F16", [1.5, -2]),
        "b.1": ("BF16", halves)}))
    layers = {name: blobs for name, _, blobs in model_layers(tmp_path / "n.safetensors")}
    assert layers["a"][0].tolist() == [1.5, np.inf]
    assert layers["a"][1].tolist() == [[1.5], [-2]]
    assert layers["b"][0].tolist() == layers["b"][1].tolist() == [1.5, -2]
    assert all(blob.dtype == np.float32 for blobs in layers.values() for blob in blobs)


@pytest.mark.parametrize(("arrays", "said"), [
    ({"a.weight": ("F32", [1])}, "expected tensors called by layer and blob, as conv1.0, got 'a.weight'"),
    ({"a.9999": ("F32", [1])}, "got 'a.9999'"), ({"a.": ("F32", [1])}, "got 'a.'"),
    ({"a.0": ("I32", [1])}, "tensor 'a.0' has I32, expected one of F64, F32, F16, BF16"), ({}, "holds no tensors")])
def test_other_tensors_are_refused(tmp_path, arrays, said):
    path = tmp_path / "n.safetensors"
    path.write_bytes(packed(arrays))
    with pytest.raises(UserError, match=said) as raised:
        list(model_layers(path))
    assert str(raised.value).startswith(f"{path}: ")


def test_damaged_files_are_one_line(tmp_path):
    """Every cut, and bytes changed at random."""
    path, rng = tmp_path / "n.safetensors", np.random.default_rng(1)
    whole = packed({"a.0": ("F32", [[1, 2], [3, 4]]), "b.0": ("F16", [5.0])})
    cuts = [whole[:n] for n in range(len(whole))]
    flips = []
    for _ in range(300):
        content = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            content[place] = rng.integers(0, 256)
        flips.append(bytes(content))
    for content in cuts + flips:
        path.write_bytes(content)
        try:
            list(model_layers(path))
        except UserError as error:
            assert str(error).startswith(f"{path}: ")
            assert "\n" not in str(error)
        else:
            assert content not in cuts
    with pytest.raises(UserError, match="none.safetensors: no such file"):
        list(model_layers(tmp_path / "none.safetensors"))


def test_two_layers_of_one_name_are_refused(tmp_path):
    blob = np.zeros(1, np.float32)
    with pytest.raises(UserError, match="2 layers with parameters are named 'a'"):
        write_model(tmp_path / "n.safetensors", "n", [stored("a", blob), stored("a", blob)])
    assert not (tmp_path / "n.safetensors").exists()


def test_a_net_goes_out_and_in(tmp_path, monkeypatch, capsys):
    """By Python and by a command; what comes back gives the same numbers."""
    monkeypatch.chdir(tmp_path)
    caffe.set_random_seed(3)
    net = small(tmp_path)
    net.save("w.safetensors")
    net.save("w.caffemodel")
    caffe.set_random_seed(4)
    others = [small(tmp_path, weights=name) for name in ("w.safetensors", "w.caffemodel")]
    expected = net.forward(data=pixels())["prob"].copy()
    for other in (*others, small(tmp_path)):
        same = (other.forward(data=pixels())["prob"] == expected).all()
        assert same == (other in others)
    for kind in ("safetensors", "caffemodel"):
        assert cli.main(["extract_features", f"w.{kind}", "small.prototxt", "ip", f"{kind}_db", "1", "lmdb"]) == 0


@pytest.mark.parametrize("way", [("a.safetensors", "b.caffemodel"),
                                 ("a.safetensors", "b.caffemodel.h5", "c.caffemodel")])
def test_files_of_one_kind_become_another(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    blobs = [np.random.default_rng(2).random(shape, np.float32) for shape in ((3, 2), (3,))]
    write_model("first.caffemodel", "n", [stored("a/b", *blobs), stored("none"), stored("c", blobs[1])])
    for old, new in zip(("first.caffemodel", *way), way):
        assert cli.main(["upgrade_net_proto_binary", old, new]) == 0
    found = {name: layer for name, _, layer in read_model(way[-1]) if layer}
    assert list(found) == ["a/b", "c"]
    assert all((mine == theirs).all() for mine, theirs in zip([*found["a/b"], *found["c"]], [*blobs, blobs[1]]))


def test_blobs_that_another_layer_owns_need_the_net(tmp_path, capsys):
    blob = np.ones(2, np.float32)
    write_model(tmp_path / "a.safetensors", "n", [stored("a", blob), stored("twin", blob, blob, shared={0})])
    assert cli.main(["upgrade_net_proto_binary", str(tmp_path / "a.safetensors"), str(tmp_path / "b.caffemodel")]) == 1
    assert "layer 'twin' has blobs that another layer owns" in capsys.readouterr().err
    assert not (tmp_path / "b.caffemodel").exists()
