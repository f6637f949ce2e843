"""What extract_features writes, byte by byte, beside protobuf's own encoder."""

from __future__ import annotations

from queue import Queue
from types import SimpleNamespace

import lmdb
import numpy as np
import pytest

from scaffe.data.convert.writers import write_lmdb
from scaffe.errors import UserError
from scaffe.proto import caffe_pb2
from scaffe.pycaffe import features
from scaffe.pycaffe.features import END, _records, _rows, extract_features

RNG = np.random.default_rng(0)
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3.4e38, 0.1], np.float32)


def naively(values: np.ndarray) -> list[bytes]:
    """A message for each row, its values one by one; one message where the blob is a single value."""
    rows = values[None] if values.ndim == 0 else values
    shapes = (*values.shape[1:], 1, 1, 1)[:3]
    messages = []
    for row in rows:
        datum = caffe_pb2.Datum(channels=shapes[0], height=shapes[1], width=shapes[2])
        for value in np.ravel(row):
            datum.float_data.append(float(value))
        messages.append(datum.SerializeToString())
    return messages


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (2, 3, 4, 5), (1, 200, 1, 1), (0, 3), (2, 0)])
def test_records_are_protobufs_own(shape):
    passes = [np.asarray(RNG.choice(ODD, shape), np.float32), RNG.standard_normal(shape).astype(np.float32)]
    queue = Queue()
    for values in passes:
        queue.put(_rows(values))
    queue.put(END)
    expected = [message for values in passes for message in naively(values)]
    assert list(_records(queue)) == [(b"%010d" % i, message) for i, message in enumerate(expected)]


def test_values_are_copied_in_the_blobs_order():
    values = np.asfortranarray(RNG.standard_normal((4, 3, 2, 5)).astype(np.float64))
    rows = _rows(values)
    values[...] = 0
    assert rows.dtype == np.float32 and rows.any() and rows.flags.c_contiguous


def test_five_axes_have_no_place():
    with pytest.raises(UserError, match=r"no place for a blob of shape \(1, 2, 3, 4, 5\)"):
        _rows(np.zeros((1, 2, 3, 4, 5)))


class Passes:
    """A net of which every pass gives other values: 300 rows of one blob, three of the other."""

    def __init__(self, fails_at: int = -1) -> None:
        self.blobs = {name: SimpleNamespace(data=np.zeros(shape, np.float32))
                      for name, shape in (("a", (300, 7)), ("b", (3, 2, 4)))}
        self.context = SimpleNamespace(kernels=SimpleNamespace(to_host=np.asarray))
        self.rng, self.done, self.fails_at = np.random.default_rng(1), 0, fails_at

    def forward(self) -> None:
        if self.done == self.fails_at:
            raise UserError("a record cannot be read")
        self.done += 1
        for each in self.blobs.values():
            each.data[...] = self.rng.standard_normal(each.data.shape)


@pytest.fixture
def net(monkeypatch):
    monkeypatch.setattr(features, "Inference", lambda net, shown: net)
    return Passes()


def test_databases_are_those_of_one_pass_after_another(tmp_path, net):
    """Byte for byte, though a pass overwrites the blobs while the rows of the one before are written."""
    assert extract_features(net, ["a", "b"], [str(tmp_path / "a"), str(tmp_path / "b")], 9) == [2700, 27]
    again, expected = Passes(), {"a": [], "b": []}
    for _ in range(9):
        again.forward()
        for name, messages in expected.items():
            messages += naively(again.blobs[name].data)
    for name, messages in expected.items():
        write_lmdb(tmp_path / f"{name}-naive", [(b"%010d" % i, message) for i, message in enumerate(messages)])
        found, naive = ((tmp_path / folder / "data.mdb").read_bytes() for folder in (name, f"{name}-naive"))
        assert found == naive
        with lmdb.open(str(tmp_path / name), readonly=True) as env, env.begin() as transaction:
            assert [value for _, value in transaction.cursor()] == messages


@pytest.mark.parametrize("fails_at", [0, 5])
def test_a_pass_that_fails_leaves_no_database(tmp_path, net, fails_at):
    net.fails_at = fails_at
    with pytest.raises(UserError, match="a record cannot be read"):
        extract_features(net, ["a", "b"], [str(tmp_path / "a"), str(tmp_path / "b")], 9)
    assert list(tmp_path.iterdir()) == []
