"""Blobs and inputs in memory that other libraries share, by DLPack: without a copy, and nothing lazy shows."""

import gc

import numpy as np
import pytest

import scaffe as caffe
from scaffe.errors import UserError
from tests import pretend
from tests.scaffe.pycaffe.pycaffe_nets import LEARNING, pixels, small

NEW = pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 cannot write there")
HOST, CUDA = 1, 2


class OnHost:
    """What a pretend device's blob gives away, read as what it is: host memory."""

    def __init__(self, blob):
        self.blob = blob

    def __dlpack__(self, **options):
        return self.blob.__dlpack__(**options)

    def __dlpack_device__(self):
        return HOST, 0


@pytest.fixture
def back_on_the_cpu():
    yield
    caffe.set_precision("fp32")
    caffe.set_mode_cpu()


def both(folder, **options):
    """Two nets of the same parameters, after the same pass: one whose blobs are shared, and one that is looked at."""
    nets = []
    for _ in range(2):
        caffe.set_random_seed(5)
        nets.append(small(folder, **options))
        nets[-1].forward(data=pixels())
    return nets


@NEW
def test_memory_is_shared_both_ways(tmp_path):
    net, plain = both(tmp_path)
    assert net.blobs["conv"].__dlpack_device__() == (HOST, 0)
    conv, weight = np.from_dlpack(net.blobs["conv"]), np.from_dlpack(net.params["ip"][0])
    np.testing.assert_array_equal(conv, plain.blobs["conv"].data, "a skipped blob is computed for it")
    assert conv.strides == net.blobs["conv"].data.strides, "channels-last, as it lies"
    conv[0] = 7
    weight *= 2
    plain.blobs["conv"].data[0] = 7
    plain.params["ip"][0].data[...] *= 2
    np.testing.assert_array_equal(net.blobs["conv"].data, plain.blobs["conv"].data)
    assert (net.forward(start="ip")["prob"] == plain.forward(start="ip")["prob"]).all()


@NEW
def test_what_is_written_between_passes_counts(tmp_path):
    """A held parameter is read again in each pass, and a held blob is written by each."""
    net, plain = both(tmp_path)
    weight, conv = np.from_dlpack(net.params["conv"][0]), np.from_dlpack(net.blobs["conv"])
    for factor in (0.5, -2):
        weight *= factor
        plain.params["conv"][0].data[...] *= factor
        found, expected = (each.forward(data=pixels(seed=3))["prob"].copy() for each in (net, plain))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        np.testing.assert_allclose(conv, plain.blobs["conv"].data, rtol=1e-5, atol=1e-6)


def test_who_lets_go_is_forgotten(tmp_path):
    net, _ = both(tmp_path)
    writes = net.blobs["conv"]._blob.writes
    shared = np.from_dlpack(net.blobs["conv"])
    assert writes.is_lent
    del shared
    gc.collect()
    assert not writes.is_lent


def channels_last(values):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 1, -1)), -1, 1)


@NEW
def test_an_input_in_others_memory(tmp_path):
    """Each pass reads what is there; another array takes the first one's place; what was computed of the old stays."""
    net, plain = both(tmp_path)
    arrays = [channels_last(pixels(seed=seed)) for seed in (1, 2)]
    for array in arrays:
        net.share_input("data", array)
        assert np.shares_memory(net.blobs["data"].data, array)
        for factor in (1, 0.5):
            array *= factor
            expected = plain.forward(data=array)
            np.testing.assert_allclose(net.forward()["prob"], expected["prob"], rtol=1e-5)
            array[0] = 0  # after the pass: what it skipped is of what it read
            np.testing.assert_allclose(net.blobs["conv"].data, plain.blobs["conv"].data, rtol=1e-5, atol=1e-6)
    net.blobs["data"].data[...] = 3
    assert (arrays[1] == 3).all()
    before = arrays[0].copy()
    net.blobs["data"].data[...] = 4
    assert (arrays[0] == before).all()


@NEW
def test_what_a_pass_skipped_is_computed_before_its_input_goes(tmp_path):
    net, plain = both(tmp_path)
    net.share_input("data", channels_last(pixels(seed=9)))
    np.testing.assert_allclose(net.blobs["conv"].data, plain.blobs["conv"].data, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "array", "said"), [
    ("conv", pixels(), "the net has no input 'conv'; it has: data"),
    ("data", pixels(3), r"expected float32 of shape \(4, 2, 5, 6\), got float32 of shape \(3, 2, 5, 6\)"),
    ("data", pixels().astype(np.float64), "got float64 of shape"),
    ("data", pixels(), r"expected channels-last memory \(PyTorch: memory_format=torch.channels_last\), got strides"),
    ("data", "text", r"expected an array where the net computes \(DLPack\), got str")])
def test_what_is_no_input(tmp_path, name, array, said):
    with pytest.raises(UserError, match=said):
        small(tmp_path).share_input(name, array)


def test_the_inputs_of_a_solvers_net_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(LEARNING)
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 9')
    with pytest.raises(UserError, match="inputs of a solver's net keep their memory"):
        caffe.SGDSolver("solver.prototxt").net.share_input("data", np.zeros((5, 8), np.float32))


def test_bfloat16_has_no_form(tmp_path, back_on_the_cpu):
    pytest.importorskip("ml_dtypes")
    caffe.set_precision("bf16")
    net, _ = both(tmp_path)
    with pytest.raises(BufferError, match="a blob of bfloat16 has no form in DLPack"):
        np.from_dlpack(net.blobs["conv"])


@NEW
@pretend.needs_compiler
def test_memory_of_a_device(tmp_path, monkeypatch, back_on_the_cpu):
    """What is shared is the device's own; the host's copies are made anew as long as somebody holds it."""
    pretend.install(monkeypatch)
    caffe.set_mode_gpu()
    net, plain = both(tmp_path)
    assert net.blobs["conv"].__dlpack_device__() == (CUDA, 0)
    net.blobs["conv"].data[0] = 7
    conv = np.from_dlpack(OnHost(net.blobs["conv"]))
    expected = plain.blobs["conv"].data.copy()
    expected[0] = 7
    np.testing.assert_array_equal(conv, expected, "with what was written on the host")
    conv[1] = 9
    expected[1] = 9
    np.testing.assert_array_equal(net.blobs["conv"].data, expected, "what the device's holder wrote is seen")
    conv[2] = 11
    expected[2] = 11
    plain.blobs["conv"].data[...] = expected
    assert (net.forward(start="ip")["prob"] == plain.forward(start="ip")["prob"]).all()
    stored = net._built.context.kernels.xp.ascontiguousarray(np.moveaxis(pixels(seed=4), 1, -1))
    net.share_input("data", net._built.context.kernels.xp.moveaxis(stored, -1, 1))
    np.testing.assert_allclose(net.forward()["prob"], plain.forward(data=pixels(seed=4))["prob"], rtol=1e-5)
    with pytest.raises(UserError, match="expected an array where the net computes"):
        net.share_input("data", channels_last(pixels()))
