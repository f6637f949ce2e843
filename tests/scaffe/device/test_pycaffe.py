"""Caffe's Python interface on a device: arrays stay NumPy's, in Caffe's layout, and what is written there counts."""

import contextlib
import os
import threading

import numpy as np
import pytest

import scaffe as caffe
from scaffe.layers.kernels import device
from tests import pretend

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
pytestmark = pytest.mark.skipif(bool(device.missing()), reason=device.missing()) if REAL else pretend.needs_compiler
TOLERANCE = {"rtol": 2e-3, "atol": 2e-3}  # of sums of 27 or 36 products of numbers near 1, their factors TF32's
NET = """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 5 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "ip" type: "InnerProduct" bottom: "c" top: "ip" inner_product_param { num_output: 2
  weight_filler { type: "xavier" } } }"""


@pytest.fixture(autouse=True)
def late():
    """What is queued runs as late as CUDA's rules allow: nothing is read before its stream has been waited for."""
    with contextlib.nullcontext() if REAL else pretend.deferring():
        yield
    caffe.set_device(0)


@pytest.fixture
def net(monkeypatch, tmp_path):
    """The net on the device and on the CPU, with the same parameters."""
    if not REAL:
        pretend.install(monkeypatch)
    path = tmp_path / "net.prototxt"
    path.write_text("force_backward: true\n" + NET)
    caffe.set_mode_cpu()
    here = caffe.Net(str(path), caffe.TEST)
    caffe.set_mode_gpu()
    there = caffe.Net(str(path), caffe.TEST)
    caffe.set_mode_cpu()
    for name, blobs in here.params.items():
        for mine, theirs in zip(blobs, there.params[name]):
            theirs.data[...] = mine.data
    return there, here


def test_forward_and_backward(net):
    there, here = net
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 5)).astype(np.float32)
    for one in net:
        one.blobs["x"].data[...] = x
        one.forward()
        one.blobs["ip"].diff[...] = 1
        one.backward()
    for name in here.blobs:
        assert type(there.blobs[name].data) is np.ndarray
        np.testing.assert_allclose(there.blobs[name].data, here.blobs[name].data, **TOLERANCE, err_msg=name)
        np.testing.assert_allclose(there.blobs[name].diff, here.blobs[name].diff, **TOLERANCE, err_msg=name)
    for name in here.params:
        np.testing.assert_allclose(there.params[name][0].diff, here.params[name][0].diff, **TOLERANCE)


def test_a_pass_that_was_queued_is_read_after_another_net_was_built(net, tmp_path):
    """Both compute on the device's one stream."""
    there, here = net
    for one in net:
        one.blobs["x"].data[...] = 1
        one.forward()
        one.blobs["ip"].diff[...] = 1
        one.backward()
    caffe.set_mode_gpu()
    caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    caffe.set_mode_cpu()
    np.testing.assert_allclose(there.blobs["x"].diff, here.blobs["x"].diff, **TOLERANCE)


def test_a_net_of_another_thread(net):
    """A thread begins with the default stream of device 0."""
    there, here = net
    thread = threading.Thread(target=there.forward)
    for one in net:
        one.blobs["x"].data[...] = 1
    here.forward()
    thread.start()
    thread.join()
    np.testing.assert_allclose(there.blobs["ip"].data, here.blobs["ip"].data, **TOLERANCE)


@pytest.mark.skipif(REAL, reason="a machine may have one device")
def test_a_net_computes_on_the_device_that_it_was_made_on(net, monkeypatch, tmp_path):
    _, here = net
    monkeypatch.setattr(pretend.device.Settings, "n_devices", 2)
    caffe.set_mode_gpu()
    there = []
    for number in range(2):
        caffe.set_device(number)
        there.append(caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST))
    caffe.set_mode_cpu()
    for one in (here, *there, *there):
        for name, blobs in here.params.items():
            for mine, theirs in zip(blobs, one.params[name], strict=True):
                theirs.data[...] = mine.data
        one.blobs["x"].data[...] = 1
        one.forward()
        np.testing.assert_allclose(one.blobs["ip"].data, here.blobs["ip"].data, **TOLERANCE)
    numbers = [net.blobs["ip"]._blob.data.device.id for net in there]
    assert numbers == [0, 1]


def test_what_is_written_counts(net):
    for one in net:
        one.blobs["x"].data[...] = 1
        one.params["ip"][1].data[...] = 7
        assert not np.allclose(one.forward()["ip"], 7)
        one.params["ip"][0].data[...] = 0  # between two passes
        np.testing.assert_array_equal(one.forward()["ip"], np.full((2, 2), 7))


def test_reshape_and_files(net, tmp_path):
    there, here = net
    for one in net:
        one.blobs["x"].reshape(3, 3, 5, 5)
        one.reshape()
        one.blobs["x"].data[...] = np.arange(225).reshape(3, 3, 5, 5) / 225
        assert one.forward()["ip"].shape == (3, 2)
    np.testing.assert_allclose(there.blobs["ip"].data, here.blobs["ip"].data, **TOLERANCE)
    there.save(str(tmp_path / "there.caffemodel"))
    here.save(str(tmp_path / "here.caffemodel"))
    assert (tmp_path / "there.caffemodel").read_bytes() == (tmp_path / "here.caffemodel").read_bytes()
    for one in net:
        one.params["ip"][0].data[...] = 0
    there.copy_from(str(tmp_path / "here.caffemodel"))
    here.copy_from(str(tmp_path / "there.caffemodel"))
    np.testing.assert_array_equal(there.params["ip"][0].data, here.params["ip"][0].data)
    np.testing.assert_allclose(there.forward()["ip"], here.forward()["ip"], **TOLERANCE)


def test_a_solver_steps(monkeypatch, tmp_path):
    if not REAL:
        pretend.install(monkeypatch)
    data = 'layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param { ' \
           'shape { dim: 2 dim: 3 dim: 5 dim: 5 } shape { dim: 2 } data_filler { type: "constant" value: 0.5 } ' \
           'data_filler { type: "constant" value: 1 } } }\n'
    loss = '\nlayer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
    (tmp_path / "net.prototxt").write_text(data + NET.split("\n", 1)[1] + loss)
    (tmp_path / "solver.prototxt").write_text(f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" '
                                              'momentum: 0.9 max_iter: 9 random_seed: 4 snapshot_prefix: "none"')
    found = []
    for mode in (caffe.set_mode_cpu, caffe.set_mode_gpu):
        mode()
        solver = caffe.SGDSolver(str(tmp_path / "solver.prototxt"))
        solver.step(3)
        found.append((float(solver.net.blobs["loss"].data), np.array(solver.net.params["ip"][0].data),
                      np.array(solver.net.blobs["c"].data)))
    caffe.set_mode_cpu()
    for mine, theirs in zip(*found):
        np.testing.assert_allclose(theirs, mine, **TOLERANCE)


DROPOUT = """force_backward: true
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 300 } } }
layer { name: "d" type: "Dropout" bottom: "x" top: "d" }"""


def test_a_seed_holds_for_device_nets_that_have_drawn(monkeypatch, tmp_path):
    if not REAL:
        pretend.install(monkeypatch)
    (tmp_path / "net.prototxt").write_text(DROPOUT)
    caffe.set_mode_gpu()
    nets = [caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN) for _ in range(2)]
    caffe.set_mode_cpu()

    def masks(order):
        found = {}
        for index in order:
            nets[index].blobs["x"].data[...] = 1
            found.setdefault(index, []).append(np.array(nets[index].forward()["d"]) > 0)
        return found

    caffe.set_random_seed(5)
    fresh = masks([0, 1, 0])
    onward = masks([0, 1])
    caffe.set_random_seed(5)
    again = masks([0, 1, 0])
    caffe.set_random_seed(6)
    other = masks([0, 1])
    for index in (0, 1):
        np.testing.assert_array_equal(again[index], fresh[index])
        assert not np.array_equal(onward[index][0], fresh[index][0])
        assert not np.array_equal(other[index][0], fresh[index][0])
    assert not np.array_equal(fresh[0][0], fresh[1][0])
    assert not np.array_equal(fresh[0][0], fresh[0][1])


def test_a_seed_draws_nothing_from_the_stream_for_nets_that_do_not_run(monkeypatch, tmp_path):
    """So that the fillers of the next net draw what Caffe's draw."""
    if not REAL:
        pretend.install(monkeypatch)
    for name, text in (("dropout", DROPOUT), ("net", NET)):
        (tmp_path / name).write_text(text)
    caffe.set_mode_gpu()
    net = caffe.Net(str(tmp_path / "dropout"), caffe.TRAIN)
    caffe.set_mode_cpu()
    net.forward()
    weights = []
    for _ in range(2):
        caffe.set_random_seed(8)
        weights.append(np.array(caffe.Net(str(tmp_path / "net"), caffe.TEST).params["c"][0].data))
        net.forward()
    np.testing.assert_array_equal(*weights)


def test_a_seed_holds_for_recorded_passes(monkeypatch, tmp_path):
    if not REAL:
        pretend.install(monkeypatch)
    data = 'layer { name: "in" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 300 } ' \
           'shape { dim: 2 dim: 300 } data_filler { type: "constant" value: 1 } data_filler { type: "constant" } } }\n'
    loss = '\nlayer { name: "loss" type: "EuclideanLoss" bottom: "d" bottom: "y" top: "loss" }'
    (tmp_path / "net.prototxt").write_text(data + DROPOUT.splitlines()[-1] + loss)
    (tmp_path / "solver.prototxt").write_text(f'net: "{tmp_path}/net.prototxt" base_lr: 0 lr_policy: "fixed" '
                                              'max_iter: 99 random_seed: 4 snapshot_prefix: "none"')
    caffe.set_mode_gpu()
    solver = caffe.SGDSolver(str(tmp_path / "solver.prototxt"))
    caffe.set_mode_cpu()

    def masks():
        found = []
        for _ in range(4):
            solver.step(1)
            found.append(np.array(solver.net.blobs["d"].data) > 0)
        return found

    first = masks()
    assert ("forward", 1) in solver._built.strategy.passes._recordings
    caffe.set_random_seed(4)
    np.testing.assert_array_equal(masks(), first)
    assert not np.array_equal(masks(), first)
