"""set_precision: what activations of new nets are; scripts see float32."""

import numpy as np
import pytest

import scaffe as caffe
from scaffe.errors import UserError
from scaffe.proto import caffe_pb2
from scaffe.pycaffe import process

NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 5 } } }
layer { name: "r" type: "ReLU" bottom: "x" top: "y" }
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    yield str(tmp_path / "net.prototxt")
    caffe.set_precision("fp32")


def test_scripts_see_float32_arrays_that_hold_the_rounded_values(path):
    caffe.set_precision("bf16")
    net = caffe.Net(path, caffe.TEST)
    net.blobs["x"].data[...] = 1 + 2.0**-10  # to nearest is 1
    net.blobs["x"].data[0, 0, 0, 0] = 1 + 3 * 2.0**-8  # between two neighbours: to the even one
    y = net.forward()["y"]
    assert y.dtype == net.blobs["x"].data.dtype == np.float32
    assert y[0, 0, 0, 0] == 1 + 2.0**-6
    assert (y.ravel()[1:] == 1).all()


def test_nets_that_exist_stay_as_they_are(path):
    net = caffe.Net(path, caffe.TEST)
    caffe.set_precision("bf16")
    net.blobs["x"].data[...] = 1 + 2.0**-10
    assert (net.forward()["y"] == np.float32(1 + 2.0**-10)).all()


def test_a_name_that_is_none():
    with pytest.raises(UserError, match="set_precision takes fp32, bf16, fp16; got 'half'"):
        process.set_precision("half")


LEARNER = """
layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param { shape { dim: 6 dim: 2 dim: 9 dim: 8 }
  shape { dim: 6 } data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 5 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "n" type: "BatchNorm" bottom: "c" top: "c" }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "d" type: "Dropout" bottom: "c" top: "c" }
layer { name: "i" type: "InnerProduct" bottom: "c" top: "i" inner_product_param { num_output: 3
  weight_filler { type: "xavier" } } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "i" bottom: "label" top: "l" }
"""


def learner(folder):
    (folder / "net.prototxt").write_text(LEARNER)
    (folder / "solver.prototxt").write_text(
        f'net: "{folder}/net.prototxt" base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" random_seed: 4 '
        f'snapshot_prefix: "{folder}/run"')
    return caffe.get_solver(str(folder / "solver.prototxt"))


def weights(solver):
    return {(name, i): blob.data.copy() for name, blobs in solver.net.params.items() for i, blob in enumerate(blobs)}


@pytest.mark.usefixtures("path")
def test_a_run_in_bf16_goes_on_from_its_float32_snapshot(tmp_path):
    caffe.set_precision("bf16")
    whole = learner(tmp_path)
    whole.step(3)
    whole.snapshot()
    kept = caffe_pb2.NetParameter.FromString((tmp_path / "run_iter_3.caffemodel").read_bytes())
    saved = {(layer.name, i): np.reshape(np.array(blob.data, np.float32), blob.shape.dim)
             for layer in kept.layer for i, blob in enumerate(layer.blobs)}
    for key, value in weights(whole).items():
        np.testing.assert_array_equal(saved[key], value)
    assert any((value.view(np.uint32) & 0xFFFF).any() for value in saved.values())  # more digits than bfloat16 has
    whole.step(4)
    resumed = learner(tmp_path)
    resumed.restore(str(tmp_path / "run_iter_3.solverstate"))
    resumed.step(4)
    for key, value in weights(whole).items():
        np.testing.assert_array_equal(weights(resumed)[key], value)
    caffe.set_precision("fp32")
    other = learner(tmp_path)
    other.restore(str(tmp_path / "run_iter_3.solverstate"))
    np.testing.assert_array_equal(weights(other)["c", 0], saved["c", 0])
