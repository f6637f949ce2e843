"""How losses count on ranks with different numbers of images, from what the ranks' nets say (no ranks needed)."""

import inspect

import pytest
from google.protobuf import text_format

from scaffe.layers.base.bases import LossLayer
from scaffe.layers.base.layer import TRAIN, layer_types
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.nets.loss_shares import lengths_of, share_losses
from scaffe.nets.setup import Selection, Share, make_context, make_net
from scaffe.proto import caffe_pb2

SOURCES = """
layer {{ name: "a" type: "DummyData" top: "x" top: "t" dummy_data_param {{ shape {{ dim: {a} dim: 3 }}
  shape {{ dim: {a} }} }} }}
layer {{ name: "b" type: "DummyData" top: "y" top: "u" dummy_data_param {{ shape {{ dim: {b} dim: 3 }}
  shape {{ dim: {b} }} }} }}
layer {{ name: "c" type: "DummyData" top: "even" dummy_data_param {{ shape {{ dim: 7 dim: 3 }} }} }}
layer {{ name: "cx" type: "Concat" bottom: "x" bottom: "y" top: "z" concat_param {{ axis: 0 }} }}
layer {{ name: "ct" type: "Concat" bottom: "t" bottom: "u" top: "v" concat_param {{ axis: 0 }} }}
"""
PARTS = ((4, 3), (3, 3), (3, 2))
"""Images of each rank from either of two data layers: 10 and 8 together."""


def nets(layers):
    """Each rank's net, whose losses are shared."""
    built = []
    for a, b in PARTS:
        param = text_format.Parse(SOURCES.format(a=a, b=b) + layers, caffe_pb2.NetParameter())
        built.append(make_net(param, Selection(TRAIN), make_context(cpu, Stream(3), Share(), 3), "net"))
    everyone = [lengths_of(net) for net in built]
    for rank, net in enumerate(built):
        share_losses(net, rank, everyone)
    return built


def shares(layers, name):
    return [net.node(name).share for net in nets(layers)]


def loss(bottoms, more="", kind="SoftmaxWithLoss", name="loss"):
    given = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f'layer {{ name: "{name}" type: "{kind}" {given} top: "{name}" {more} }}'


@pytest.mark.parametrize(("bottoms", "images"), [
    (("x", "t"), [4 / 10, 3 / 10, 3 / 10]), (("y", "u"), [3 / 8, 3 / 8, 2 / 8]),
    (("z", "v"), [7 / 18, 6 / 18, 5 / 18])])
def test_a_mean_counts_by_the_images_of_the_data_layers_above(bottoms, images):
    for share, part in zip(shares(loss(bottoms), "loss"), images, strict=True):
        assert share == pytest.approx((3 * part, 3 * part))


@pytest.mark.parametrize("layer", [
    loss("xt", "loss_param { normalization: NONE }"), loss("xt", "loss_param { normalization: PRE_FIXED }"),
    loss("x", "loss_weight: 1", "Power"),
    loss("x", "loss_weight: 1 reduction_param { axis: 1 operation: MEAN }", "Reduction"),
    loss("x", "loss_weight: 1 reduction_param { operation: SUMSQ }", "Reduction"),
    loss(("even",), "loss_weight: 1 reduction_param { operation: MEAN }", "Reduction")])
def test_sums_over_images_and_what_all_ranks_have_alike_count_as_they_are(layer):
    assert shares(layer, "loss") == [(1, 1)] * 3


@pytest.mark.parametrize("layer", [
    loss("xx", "loss_param { normalization: NONE }", "EuclideanLoss"), loss("xt", "loss_param { normalize: false }"),
    loss("x", "loss_weight: 1 reduction_param { operation: MEAN }", "Reduction"),
    loss("xt", "loss_param { normalization: BATCH_SIZE }")])
def test_means_by_other_ways_count_by_images(layer):
    assert [share.gradient for share in shares(layer, "loss")] == pytest.approx([1.2, 0.9, 0.9])


def test_a_loss_scale_does_not_undo_it():
    net = nets(loss("xt"))[0]
    net.scale_loss(8.0)
    assert float(net.blobs["loss"].diff) == pytest.approx(8 * 1.2)


def test_the_nets_loss_is_weighted_and_outputs_are_cut_to_what_all_have():
    first = nets(loss("xt") + loss("x", kind="Power", name="squares"))[0]
    assert first.forward() == pytest.approx(1.2 * float(first.blobs["loss"].data))
    assert first.shares.weight == pytest.approx(1.2)
    assert first.shares.outputs["squares"] == (1.0, 9)
    assert first.shares.outputs["loss"] == (pytest.approx(1.2), 1)


def test_every_loss_that_loss_param_divides_says_so():
    kinds = [kind for kind in map(layer_types.get, layer_types.names()) if issubclass(kind, LossLayer)]
    assert len(kinds) > 15
    for kind in kinds:
        source = "".join(inspect.getsource(each) for each in kind.__mro__ if issubclass(each, LossLayer))
        assert kind.is_normalized == ("loss_divisor(" in source or " normalizer(" in source), kind
