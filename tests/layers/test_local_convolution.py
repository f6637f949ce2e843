"""LocalConvolution against a loop over elements; its fillers; what it refuses."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.errors import LayerError
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TRAIN
from scaffe.layers.base.random import Stream
from scaffe.layers.vision.windows import LocalConvolution
from scaffe.nets.devices import load_kernels
from scaffe.proto import caffe_pb2
from tests.reference.local import local_convolution

SHAPE = (2, 3, 7, 6)


def made(options, shape=SHAPE):
    """The layer, shaped, with its bottom and top."""
    param = text_format.Parse(f"local_convolution_param {{ {options} }}", caffe_pb2.LayerParameter())
    context = Context(TRAIN, load_kernels(1), rng=Stream(3))
    layer, bottom, top = LocalConvolution(param, context), context.blob(), context.blob()
    bottom.reshape(shape)
    layer.setup([bottom], [top])
    layer.reshape([bottom], [top])
    return layer, bottom, top


@pytest.mark.parametrize(("options", "stride", "pad", "dilation"), [
    ("kernel_size: 3", (1, 1), (0, 0), (1, 1)),
    ("kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 2", (2, 1), (1, 2), (1, 1)),
    ("kernel_size: 2 dilation: 3 pad: 1 stride: 2", (2, 2), (1, 1), (3, 3))])
def test_each_place_has_its_own_weights(options, stride, pad, dilation):
    filler = 'weight_filler { type: "gaussian" std: 1 } bias_filler { type: "gaussian" std: 1 }'
    layer, bottom, top = made(f"num_output: 4 {options} {filler}")
    bottom.data[...] = np.random.default_rng(1).standard_normal(SHAPE)
    layer.forward([bottom], [top])
    wanted = local_convolution(bottom.data, layer.blobs[0].data, layer.blobs[1].data, stride, pad, dilation)
    np.testing.assert_allclose(top.data, wanted, rtol=1e-4, atol=1e-4)


def test_fillers_see_a_convolutions_fan_in():
    layer, *_ = made('num_output: 5 kernel_size: 2 bias_term: false weight_filler { type: "xavier" }')
    largest = np.abs(layer.blobs[0].data).max()
    assert 0.95 * np.sqrt(3 / (3 * 2 * 2)) < largest <= np.sqrt(3 / (3 * 2 * 2))
    assert len(np.unique(layer.blobs[0].data)) > 0.99 * layer.blobs[0].n_elems


@pytest.mark.parametrize(("options", "shape", "words"), [
    ("num_output: 2 kernel_size: 3", (4, 5), "four axes"), ("kernel_size: 3", SHAPE, "num_output"),
    ("num_output: 2 kernel_size: 9", SHAPE, "does not fit")])
def test_what_does_not_fit_is_one_line(options, shape, words):
    with pytest.raises(LayerError, match=words):
        made(options, shape)
