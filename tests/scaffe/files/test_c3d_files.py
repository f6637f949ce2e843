"""Files of C3D's first version, whose BlobProto has a length and numbers its fields otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.data.feeds.layer_feed import Share
from scaffe.data.feeds.parameters import read_mean_array
from scaffe.errors import DataError, UserError
from scaffe.files import read_model
from scaffe.nets.devices import load_kernels
from scaffe.nets.setup import Selection, net_from_file
from scaffe.nets.weights import load_weights

CONVOLUTION3D, INNER_PRODUCT = 30, 14  # its own numbers; 30 is ArgMax in Caffe
RNG = np.random.default_rng(4)
ARRAYS = {"conv1a": (CONVOLUTION3D, [RNG.random((4, 3, 3, 2, 2), np.float32), RNG.random((1, 1, 1, 1, 4), np.float32)]),
          "fc": (INNER_PRODUCT, [RNG.random((1, 1, 1, 2, 72), np.float32), RNG.random((1, 1, 1, 1, 2), np.float32)])}
NET = """layers { name: "data" type: DUMMY_DATA top: "data"
  dummy_data_param { shape { dim: 1 dim: 3 dim: 4 dim: 4 dim: 4 } } }
layers { name: "conv1a" type: CONVOLUTION3D bottom: "data" top: "conv1a"
  convolution_param { num_output: 4 kernel_size: 2 kernel_depth: 3 } }
layers { name: "fc" type: INNER_PRODUCT bottom: "conv1a" top: "fc" inner_product_param { num_output: 2 } }"""


def number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def delimited(field, content):
    return number(field << 3 | 2) + number(len(content)) + content


def blob(array, cut=0):
    dims = b"".join(number(field << 3) + number(n) for field, n in enumerate(array.shape, 1))
    return dims + delimited(6, array.astype("<f4").tobytes()[: array.nbytes - cut])


def model(cut=0):
    return b"".join(delimited(2, delimited(4, name.encode()) + number(5 << 3) + number(kind)
                              + b"".join(delimited(6, blob(array, cut)) for array in arrays))
                    for name, (kind, arrays) in ARRAYS.items())


def test_a_trained_net_of_the_first_version_is_loaded(tmp_path):
    (tmp_path / "c3d.caffemodel").write_bytes(model())
    (tmp_path / "net.prototxt").write_text(NET)
    net = net_from_file(str(tmp_path / "net.prototxt"), Selection(1), load_kernels(1), Share())
    load_weights(net, tmp_path / "c3d.caffemodel")
    for node in net.nodes:
        for found, expected in zip(node.layer.blobs, ARRAYS.get(node.name, (0, []))[1], strict=True):
            np.testing.assert_array_equal(found.data.ravel(), expected.ravel())


@pytest.mark.parametrize("cut", [4, 2])
def test_values_that_break_off_are_told(tmp_path, cut):
    (tmp_path / "c3d.caffemodel").write_bytes(model(cut))
    with pytest.raises(UserError, match="holds|break off"):
        read_model(tmp_path / "c3d.caffemodel")


def test_a_mean_of_clips_of_the_first_version(tmp_path):
    mean = RNG.random((1, 3, 4, 5, 6), np.float32)
    (tmp_path / "mean").write_bytes(blob(mean))
    np.testing.assert_array_equal(read_mean_array(str(tmp_path / "mean"), 4), mean[0])
    with pytest.raises(DataError, match="expected one image"):
        read_mean_array(str(tmp_path / "mean"), 3)
