"""Weights, states, prototxts, tables and logs made to crash, to hang or to fill the memory: one line each."""

import h5py
import numpy as np
import pytest

from scaffe.cli.commands.logs import plot
from scaffe.collectives.errors import CommError
from scaffe.collectives.tuning.table import TuningTable
from scaffe.errors import ExpectedError, UserError
from scaffe.files import hdf5
from scaffe.files.blobs import blob_array, read_mean
from scaffe.files.solverstate import read_state
from scaffe.files.weights import read_model
from scaffe.input_files import checksum
from scaffe.pictures.scaling import read_run
from scaffe.proto import caffe_pb2
from scaffe.proto.text import ProtoError, read_message
from scaffe.report.caffe_log import parse_log
from tests.crafted import not_files


def net_file(folder, fill):
    """A .caffemodel.h5 whose group of layer "ip" was filled by ``fill``."""
    with h5py.File(folder / "net.caffemodel.h5", "w") as file:
        fill(file.create_group("data/ip"))
    return folder / "net.caffemodel.h5"


@pytest.mark.parametrize("name", ["3000000000", "1000", "9" * 40])
def test_a_blob_of_an_impossible_number(tmp_path, name):
    with pytest.raises(UserError, match=f"layer 'ip' has a blob of the number {int(name)}; no layer has more"):
        read_model(net_file(tmp_path, lambda ip: ip.create_dataset(name, data=[1.0])))


def test_a_blob_may_be_left_out(tmp_path):
    ((name, _, blobs),) = read_model(net_file(tmp_path, lambda ip: ip.create_dataset("2", data=[1.0])))
    assert name == "ip" and blobs[:2] == [None, None] and blobs[2].tolist() == [1.0]


def test_groups_in_a_ring_end(tmp_path):
    """Two links from a group to itself: without a list of what was seen, 2 ** 1000 ways."""
    def ring(ip):
        ip["0"] = np.ones(3)
        ip["self"], ip["again"] = ip, ip.parent

    ((name, _, blobs),) = [layer for layer in read_model(net_file(tmp_path, ring)) if layer[0] == "ip"]
    assert blobs[0].tolist() == [1, 1, 1]


def test_many_links_to_a_dataset_of_nothing(tmp_path):
    """Each within the limit, together 200 GB."""
    def many(ip):
        nothing = ip.create_dataset("0", (1 << 24,), np.float32)
        for i in range(1, 1000):
            ip[str(i)] = nothing

    with pytest.raises(UserError, match=r"dataset 'ip/\d+' of shape \(16777216,\) takes 67108864 bytes, more than"):
        read_model(net_file(tmp_path, many))


def test_weights_and_states_stay_inside_their_file(tmp_path):
    (tmp_path / "raw").write_bytes(bytes(100))
    outside = [(tmp_path / "raw", 0, 20)]
    with pytest.raises(UserError, match="lies in other files"):
        read_model(net_file(tmp_path, lambda ip: ip.create_dataset("0", (5,), np.float32, external=outside)))
    with h5py.File(tmp_path / "a.solverstate.h5", "w") as file:
        file["iter"] = h5py.ExternalLink("/dev/zero", "iter")
    with pytest.raises(UserError, match="links into other files"):
        hdf5.read_state(tmp_path / "a.solverstate.h5")


@pytest.mark.parametrize("content", [
    b"\x2a\x03abc", b"\x42\x0cabcdefghabcd",                                  # values that break off
    b"\x3a\x16\x0a\x14" + (b"\x80" * 9 + b"\x01") * 2,                        # 2 ** 63 x 2 ** 63 of nothing
    b"\x3a\x0c\x0a\x0a" + b"\x80\x80\x80\x80\x10" * 2,                        # 2 ** 32 x 2 ** 32: 0 in 64 bits
])
def test_blobs_whose_shape_does_not_fit(content):
    with pytest.raises(ValueError, match="break off|holds 0 values"):
        blob_array(memoryview(content))


def test_values_in_pieces_and_one_by_one():
    """Old writers tag each value."""
    content = b"\x3a\x03\x0a\x01\x03" + b"\x2d\0\0\x80\x3f" + b"\x2a\x08" + np.array([2, 3], "<f4").tobytes()
    np.testing.assert_array_equal(blob_array(memoryview(content)), [1, 2, 3])


def test_a_model_of_blobs_without_end(tmp_path):
    """400 KB of empty blobs."""
    blobs = b"\x3a\x00" * 200_000
    length = bytes([len(blobs) & 127 | 128, len(blobs) >> 7 & 127 | 128, len(blobs) >> 14])
    (tmp_path / "a.caffemodel").write_bytes(b"\xa2\x06" + length + blobs)
    with pytest.raises(UserError, match="more than 100000 blobs"):
        read_model(tmp_path / "a.caffemodel")


READERS = {
    "prototxt": lambda path: read_message(path, caffe_pb2.NetParameter), "model": read_model, "state": read_state,
    "mean": read_mean, "checksum": checksum, "log": parse_log, "run": lambda path: read_run(path, "strong"),
    "table": TuningTable.read, "plot": lambda path: plot([str(path)]),
    "model.h5": lambda path: list(hdf5.model_layers(path)),
}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_not_a_file_is_told(tmp_path, kind):
    for path in not_files(tmp_path):
        with pytest.raises((ExpectedError, ProtoError), match="expected a file, found a (named pipe|device)") as caught:
            READERS[kind](path)
        assert path in str(caught.value) and "\n" not in str(caught.value)


def test_brackets_without_end(tmp_path):
    (tmp_path / "a.json").write_text("[" * 200_000)
    with pytest.raises(CommError, match="a.json"):
        TuningTable.read(tmp_path / "a.json")
    with pytest.raises(UserError, match="a.json: not a trace"):
        plot([str(tmp_path / "a.json")])
    with pytest.raises(UserError, match="absent: no such file"):
        plot([str(tmp_path / "absent")])
