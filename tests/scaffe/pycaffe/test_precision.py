"""set_precision: what activations of new nets are; scripts see float32."""

import numpy as np
import pytest

import scaffe as caffe
from scaffe.errors import UserError
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
