"""Layers cut by rows of pixels or channels, with halos, among ranks that are threads: values of the layer on the whole.

What is compared with is the layer on one rank, itself held against naive references in tests/layers.
"""

from functools import partial

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.layer import layer_types
from scaffe.proto import caffe_pb2
from scaffe.training.partition.layers.halo import Crop, Halo
from scaffe.training.partition.layers.interior import INTERIOR_FIRST, HaloOverlap
from scaffe.training.partition.layers.redistribution import Redistribution
from scaffe.training.partition.planner.windows import window_of, without_padding
from scaffe.training.partition.sharding import AXES
from tests.scaffe.training.partition.test_redistribution import assert_same_bits, context, run

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
    "lcn": ("bands", 'type: "LCN" lcn_param { local_size: 3 sigma: 1 }'),
    "lcn_a_channel": ("bands", 'type: "LCN" lcn_param { local_size: 5 across_channels: false }'),
    "up": ("bands", 'type: "Deconvolution" convolution_param { num_output: 3 kernel_size: 4 stride: 2 pad: 1 }'),
    "up_by_its_window": ("bands", 'type: "Deconvolution" convolution_param { num_output: 2 kernel_size: 2 stride: 2 }'),
    "up_far": ("bands", 'type: "Deconvolution" convolution_param { num_output: 4 kernel_size: 3 dilation: 2 pad: 3 '
                        'stride: 3 group: 2 }'),
    "within": ("bands", 'type: "LRN" lrn_param { norm_region: WITHIN_CHANNEL local_size: 5 alpha: 3 }'),
    "across": ("channels", 'type: "LRN" lrn_param { local_size: 5 alpha: 3 }')}


def layer_of(message):
    return layer_types.get(message.type)(message, context())


def reader_of(message, halo, interior_first):
    """What reads a halo."""
    if interior_first and halo.inside.start < halo.inside.stop:
        return HaloOverlap(message, context(), layer_types.get(message.type), halo)
    return layer_of(message)


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
    for move, layer, blob in zip(layers, layers[1:], blobs[1:], strict=False):
        if isinstance(move, Redistribution):
            layer.bottoms_written = partial(move.send_back, blob)
    for layer, bottom, top in list(zip(layers, blobs, blobs[1:], strict=False))[::-1]:
        layer.backward([top], [True], [bottom])
    return y, blobs[0].diff.copy(), [blob.diff.copy() for layer in layers for blob in layer.blobs]


WAYS = [(name, interior_first) for name in LAYERS for interior_first in (False, True)
        if not interior_first or any(kind in LAYERS[name][1] for kind in INTERIOR_FIRST)]


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
@pytest.mark.parametrize(("name", "interior_first"), WAYS)
def test_a_cut_layer_computes_its_part_of_the_whole(name, interior_first, n_ranks):
    """The same bits whether halos and their gradients come at once or as late as they can."""
    cut, text = LAYERS[name]
    axis, message = AXES[cut], text_format.Parse(text, caffe_pb2.LayerParameter(name="l"))
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 8, 11, 6) if cut == "bands" else (2, 7, 5, 4)).astype(np.float32)
    gradients = rng.standard_normal((2, 8, 40, 40)).astype(np.float32)
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
        if window.brings_padding:
            without_padding(inner)
        halo = Halo(message, context(), group, length, window)
        layers = [halo, reader_of(inner, halo, interior_first)]
        if window.crops:
            layers.append(Crop(message, context(), group, length, window))
        wanted = gradients[tuple(map(slice, whole[0].shape))]
        return through(layers, part(x, group.rank, length), lambda shape: part(wanted, group.rank, n_outputs))

    found = run(n_ranks, work)
    assert_same_bits([(y, gx, *gw) for y, gx, gw in found],
                     [(y, gx, *gw) for y, gx, gw in run(n_ranks, work, is_late=False)])
    for rank, (y, gx, _) in enumerate(found):
        np.testing.assert_allclose(y, part(whole[0], rank, n_outputs), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(gx, part(whole[1], rank, length), rtol=1e-5, atol=1e-5)
    for i, gw in enumerate(whole[2]):
        everyones = [own[i] for _, _, own in found]
        np.testing.assert_allclose(np.concatenate(everyones) if name == "local" else sum(everyones), gw, rtol=1e-4,
                                   atol=1e-4)


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
@pytest.mark.parametrize("name", [name for name, way in LAYERS.items() if way[0] == "bands" and name[:2] != "up"])
def test_what_is_inside_needs_no_halo_and_nothing_else_does_without(name, n_ranks):
    window = window_of(text_format.Parse(LAYERS[name][1], caffe_pb2.LayerParameter(name="l")), "bands")
    n_outputs = window.outputs(11)
    for rank in range(n_ranks):
        own, outputs = (range(rank * n // n_ranks, (rank + 1) * n // n_ranks) for n in (11, n_outputs))
        needed = {i: {j for j in range(i * window.stride - window.pad, i * window.stride - window.pad + window.extent)
                      if 0 <= j < 11} for i in outputs}
        inside = window.inside(slice(outputs.start, outputs.stop), slice(own.start, own.stop), 11)
        assert [i for i in outputs if needed[i] <= set(own)] == list(range(inside.start, inside.stop))
