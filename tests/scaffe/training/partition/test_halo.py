"""Layers cut by rows of pixels or channels, with halos, among ranks that are threads: values of the layer on the whole.

What is compared with is the layer on one rank, itself held against naive references in tests/layers.
"""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.layer import layer_types
from scaffe.proto import caffe_pb2
from scaffe.training.partition.halo import Crop, Halo
from scaffe.training.partition.kinds import AXES
from scaffe.training.partition.windows import window_of, without_padding
from tests.scaffe.training.partition.test_moves import context, run

LAYERS = {
    "conv": ("bands", 'type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 pad: 1 }'),
    "strides": ("bands", 'type: "Convolution" convolution_param { num_output: 2 kernel_size: 2 stride: 2 }'),
    "gaps": ("bands", 'type: "Convolution" convolution_param { num_output: 2 kernel_size: 1 stride: 3 }'),
    "far": ("bands", 'type: "Convolution" convolution_param { num_output: 2 kernel_h: 3 kernel_w: 2 pad_h: 4 pad_w: 1 '
                     'dilation: 4 }'),
    "local": ("bands", 'type: "LocalConvolution" local_convolution_param { num_output: 2 kernel_size: 3 pad: 1 }'),
    "max": ("bands", 'type: "Pooling" pooling_param { kernel_size: 3 stride: 2 pad: 1 }'),
    "max_over_the_end": ("bands", 'type: "Pooling" pooling_param { kernel_size: 4 stride: 2 }'),
    "average": ("bands", 'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }'),
    "average_over_the_end": ("bands", 'type: "Pooling" pooling_param { pool: AVE kernel_size: 4 stride: 2 }'),
    "floor": ("bands", 'type: "Pooling" pooling_param { pool: AVE kernel_size: 4 stride: 2 pad: 1 round_mode: FLOOR }'),
    "within": ("bands", 'type: "LRN" lrn_param { norm_region: WITHIN_CHANNEL local_size: 5 alpha: 3 }'),
    "across": ("channels", 'type: "LRN" lrn_param { local_size: 5 alpha: 3 }')}


def layer_of(message):
    return layer_types.get(message.type)(message, context())


def through(layers, x, gy):
    """Data forward and gradients backward through layers; parameters count up."""
    made = context()
    blobs = [made.blob() for _ in range(len(layers) + 1)]
    blobs[0].reshape(x.shape)
    for layer, bottom, top in zip(layers, blobs, blobs[1:], strict=False):
        layer.setup([bottom], [top])
        layer.reshape([bottom], [top])
        for blob in layer.blobs:  # a place's weights are all places'
            n = blob.shape[-1] if blob.ndim == 3 else int(np.prod(blob.shape[-4:]))
            blob.data[...] = np.resize(np.sin(np.arange(n)), blob.shape)
    blobs[0].data[...] = x
    for layer, bottom, top in zip(layers, blobs, blobs[1:], strict=False):
        layer.forward([bottom], [top])
    y = blobs[-1].data.copy()
    blobs[-1].diff[...] = gy(y.shape)
    for layer, bottom, top in list(zip(layers, blobs, blobs[1:], strict=False))[::-1]:
        layer.backward([top], [True], [bottom])
    return y, blobs[0].diff.copy(), [blob.diff.copy() for layer in layers for blob in layer.blobs]


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
@pytest.mark.parametrize("name", LAYERS)
def test_a_cut_layer_computes_its_part_of_the_whole(name, n_ranks):
    cut, text = LAYERS[name]
    axis, message = AXES[cut], text_format.Parse(text, caffe_pb2.LayerParameter(name="l"))
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 8, 11, 6) if cut == "bands" else (2, 7, 5, 4)).astype(np.float32)
    gradients = rng.standard_normal((2, 8, 16, 16)).astype(np.float32)
    whole = through([layer_of(message)], x, lambda shape: gradients[tuple(map(slice, shape))])
    window = window_of(message, cut)
    length, n_outputs = x.shape[axis], whole[0].shape[axis]

    def part(array, rank, n):
        at = [slice(None)] * 4
        at[axis] = slice(rank * n // n_ranks, (rank + 1) * n // n_ranks)
        return array[tuple(at)]

    def work(group):
        inner = caffe_pb2.LayerParameter()
        inner.CopyFrom(message)
        if not window.crops:
            without_padding(inner)
        layers = [Halo(message, context(), group, length, window), layer_of(inner)]
        if window.crops:
            layers.append(Crop(message, context(), group, length, window))
        wanted = gradients[tuple(map(slice, whole[0].shape))]
        return through(layers, part(x, group.rank, length), lambda shape: part(wanted, group.rank, n_outputs))

    found = run(n_ranks, work)
    for rank, (y, gx, _) in enumerate(found):
        np.testing.assert_allclose(y, part(whole[0], rank, n_outputs), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(gx, part(whole[1], rank, length), rtol=1e-5, atol=1e-5)
    for i, gw in enumerate(whole[2]):
        everyones = [own[i] for _, _, own in found]
        np.testing.assert_allclose(np.concatenate(everyones) if name == "local" else sum(everyones), gw, rtol=1e-4,
                                   atol=1e-4)
