"""Weights, states and means: what we write, protobuf itself reads, and the other way round."""

import threading

import numpy as np
import pytest

from scaffe.errors import UserError
from scaffe.files import (
    SolverState,
    StoredLayer,
    checksum,
    model_layers,
    read_mean,
    read_model,
    read_state,
    write_mean,
    write_model,
    write_state,
)
from scaffe.proto import caffe_pb2

RNG = np.random.RandomState(3)
WEIGHTS = [RNG.randn(2, 3, 1, 5).astype(np.float32), RNG.randn(7).astype(np.float32)]


def layer(name, kind, arrays=()):
    message = caffe_pb2.LayerParameter(name=name, type=kind, bottom=["x"], phase=0)
    message.convolution_param.num_output = 2
    for array in arrays:
        blob = message.blobs.add()
        blob.shape.dim.extend(array.shape)
        blob.data.extend(array.reshape(-1).tolist())
    return message


def test_model_is_byte_for_byte_what_protobuf_writes(tmp_path):
    path = tmp_path / "m.caffemodel"
    write_model(path, "n", [StoredLayer(layer("c", "Convolution"), WEIGHTS), StoredLayer(layer("r", "ReLU"), [])])
    expected = caffe_pb2.NetParameter(name="n", layer=[layer("c", "Convolution", WEIGHTS), layer("r", "ReLU")])
    assert path.read_bytes() == expected.SerializeToString()


@pytest.mark.parametrize("ending", ["", ".h5"])
def test_model_round_trip(tmp_path, ending):
    path = tmp_path / f"m.caffemodel{ending}"
    write_model(path, "n", [StoredLayer(layer("c", "Convolution"), WEIGHTS), StoredLayer(layer("r", "ReLU"), [])])
    found = {name: arrays for name, _, arrays in read_model(path)}
    assert [a.tobytes() for a in found["c"]] == [w.tobytes() for w in WEIGHTS]
    assert [a.shape for a in found["c"]] == [w.shape for w in WEIGHTS]
    assert found["r"] == []


def test_old_shapes_doubles_and_generations_are_read(tmp_path):
    net = caffe_pb2.NetParameter(name="old")
    old = net.layers.add(name="ip", type=caffe_pb2.V1LayerParameter.INNER_PRODUCT)
    old.blobs.add(num=1, channels=1, height=2, width=3, double_data=[0.5, 1, 2, 3, 4, 5])
    path = tmp_path / "old.caffemodel"
    path.write_bytes(net.SerializeToString())
    (name, kind, (blob,)), = read_model(path)
    assert (name, kind, blob.shape, blob.dtype) == ("ip", "InnerProduct", (1, 1, 2, 3), np.float32)
    assert blob.reshape(-1).tolist() == [0.5, 1, 2, 3, 4, 5]


def test_blobs_of_v0_nets_find_their_layers(tmp_path):
    """A padding layer vanishes and an Input layer comes in front; values are packed and not."""
    net = caffe_pb2.NetParameter(input=["x"], input_dim=[1, 1, 4, 4])
    net.layers.add(bottom=["x"], top=["p"]).layer.MergeFrom(caffe_pb2.V0LayerParameter(type="padding", name="p", pad=1))
    for index, name in enumerate("ab"):
        old = net.layers.add(bottom=["p"], top=[name]).layer
        old.MergeFrom(caffe_pb2.V0LayerParameter(type="conv", name=name))
        old.blobs.add(num=1, channels=1, height=1, width=2, data=[index, index + 0.5])
    unpacked = caffe_pb2.LayerParameter(name="a", type="Bias").SerializeToString()
    unpacked += b"\x3a\x0e\x2d\0\0\x80\x3f\x2d\0\0\0\x40\x3a\x02\x08\x02"
    (tmp_path / "v0").write_bytes(net.SerializeToString())
    (tmp_path / "unpacked").write_bytes(b"\xa2\x06" + bytes([len(unpacked)]) + unpacked)
    found = {name: [b.tolist() for b in blobs] for name, _, blobs in read_model(tmp_path / "v0")}
    assert found == {"input": [], "a": [[[[[0, 0.5]]]]], "b": [[[[[1, 1.5]]]]]}
    assert read_model(tmp_path / "unpacked")[0][2][0].tolist() == [1, 2]


@pytest.mark.parametrize("ending", ["", ".h5"])
def test_blobs_without_axes_and_names_with_slashes(tmp_path, ending):
    path = tmp_path / f"m.caffemodel{ending}"
    scalar = np.array(0.25, np.float32)
    layers = (("a/b", [scalar]), ("a", [WEIGHTS[1]]), ("a/c", []))
    write_model(path, "n", [StoredLayer(layer(name, "X"), blobs) for name, blobs in layers])
    found = {name: blobs for name, _, blobs in read_model(path)}
    assert found["a/b"][0].shape == () and found["a/b"][0] == scalar
    assert found["a"][0].tolist() == WEIGHTS[1].tolist()
    assert found["a/c"] == []
    if not ending:  # Caffe writes no shape for a blob without axes
        assert not caffe_pb2.NetParameter.FromString(path.read_bytes()).layer[0].blobs[0].HasField("shape")


def test_a_shape_that_does_not_fit_is_one_line(tmp_path):
    net = caffe_pb2.NetParameter()
    net.layer.add(name="l").blobs.add(num=2, channels=1, height=1, width=2, data=[1, 2, 3])
    (tmp_path / "m").write_bytes(net.SerializeToString())
    with pytest.raises(UserError, match=r"m: a blob of shape \(2, 1, 1, 2\) holds 3 values"):
        read_model(tmp_path / "m")


def test_every_cut_of_a_file_is_told(tmp_path):
    path = tmp_path / "m"
    write_model(path, "n", [StoredLayer(layer("c", "Convolution"), WEIGHTS)])
    raw = path.read_bytes()
    for n_bytes in range(1, len(raw)):
        path.write_bytes(raw[:n_bytes])
        with pytest.raises(UserError, match="m: "):
            read_model(path)


@pytest.mark.parametrize("ending", ["", ".h5"])
def test_state_round_trip(tmp_path, ending):
    path = tmp_path / f"s.solverstate{ending}"
    state = SolverState(7, "m.caffemodel", 2, WEIGHTS, [b"\x01\x02", b"\x03\x04"], 4000000000)
    write_state(path, state)
    found = read_state(path)
    assert (found.iteration, found.learned_net, found.current_step) == (7, "m.caffemodel", 2)
    assert (found.streams, found.model_checksum) == (state.streams, 4000000000)
    assert [h.tobytes() for h in found.history] == [w.tobytes() for w in WEIGHTS]
    if not ending:
        message = caffe_pb2.SolverState.FromString(path.read_bytes())
        assert (message.iter, list(message.history[0].shape.dim)) == (7, [2, 3, 1, 5])


def test_a_flipped_bit_in_a_state_is_told(tmp_path):
    path = tmp_path / "s"
    write_state(path, SolverState(7, "m", 2, WEIGHTS))
    raw = bytearray(path.read_bytes())
    raw[-40] ^= 4
    path.write_bytes(raw)
    with pytest.raises(UserError, match="s: damaged: its checksum does not fit"):
        read_state(path)


def test_checksum_is_crc32(tmp_path):
    (tmp_path / "f").write_bytes(b"123456789")
    assert checksum(tmp_path / "f") == 0xCBF43926  # the check value of CRC-32/ISO-HDLC
    with pytest.raises(UserError, match="no such file"):
        checksum(tmp_path / "none")


def test_caffes_own_states_without_our_fields_are_read(tmp_path):
    state = caffe_pb2.SolverState(iter=9, learned_net="m", current_step=0)
    state.history.add(data=[1, 2]).shape.dim.append(2)
    (tmp_path / "s").write_bytes(state.SerializeToString())
    found = read_state(tmp_path / "s")
    assert (found.iteration, found.history[0].tolist(), found.model_checksum) == (9, [1, 2], None)


def test_mean_round_trip(tmp_path):
    mean = RNG.rand(1, 3, 4, 5).astype(np.float32)
    write_mean(tmp_path / "mean.binaryproto", mean)
    assert read_mean(tmp_path / "mean.binaryproto").tobytes() == mean.tobytes()


@pytest.mark.parametrize("read", [read_model, read_state, read_mean])
def test_missing_and_truncated_files_are_one_line(tmp_path, read):
    with pytest.raises(UserError, match="no such file"):
        read(tmp_path / "none")
    good = tmp_path / "good"
    write_model(good, "n", [StoredLayer(layer("c", "Convolution"), WEIGHTS)])
    cut = tmp_path / "cut"
    cut.write_bytes(good.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"cut: truncated") as error:
        read(cut)
    assert "\n" not in str(error.value)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.caffemodel"
    write_model(path, "n", [StoredLayer(layer("c", "Convolution"), WEIGHTS)])
    before = path.read_bytes()

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(UserError, match="m.caffemodel cannot be written: no space left on device"):
        write_model(path, "n", [StoredLayer(layer("c", "Convolution"), [2 * w for w in WEIGHTS])])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.caffemodel"]


def test_an_error_that_somebody_keeps_holds_up_no_other_thread(tmp_path):
    """h5py has one lock, which a loop over a file keeps while its error lives, as in a notebook."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["data/ip/0"], file["data/ip2/0"] = np.zeros(3, np.float32), np.ones(3, np.float32)
    layers = model_layers(tmp_path / "w.h5")
    assert next(layers)[0] == "ip"  # and is kept there
    found = []
    reader = threading.Thread(target=lambda: found.extend(read_model(tmp_path / "w.h5")), daemon=True)
    reader.start()
    reader.join(60)
    assert [name for name, *_ in found] == ["ip", "ip2"]
