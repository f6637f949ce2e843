"""Nets built from text: shared parameters, wrong connections, ranges of layers, hooks, lazy clearing."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.errors import UserError
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TRAIN
from scaffe.layers.base.random import Stream
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2

INPUT = 'layer { name: "in" type: "Input" top: "a" top: "b" input_param { shape { dim: 2 dim: 3 } } }'


def build(text, force=False):
    from scaffe.layers.kernels import cpu

    message = text_format.Parse(text, caffe_pb2.NetParameter())
    message.force_backward = force
    return build_net(graph.prepare(message, TRAIN), Context(TRAIN, cpu, rng=Stream(3)))


def ip(name, bottom, param="", n=3):
    return (f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {param} '
            f'inner_product_param {{ num_output: {n} bias_term: false weight_filler {{ type: "xavier" }} }} }}\n')


def loss(a, b):
    return f'layer {{ name: "l" type: "EuclideanLoss" bottom: "{a}" bottom: "{b}" top: "l" }}'


def test_shared_parameters_are_one_memory_and_add_their_gradients():
    net = build(INPUT + ip("x", "a", 'param { name: "w" }') + ip("y", "b", 'param { name: "w" }') + loss("x", "y"))
    w, = net.params.params
    rng = np.random.RandomState(0)
    a, b = rng.randn(2, 2, 3).astype(np.float32)
    net.blobs["a"].data, net.blobs["b"].data = a, b
    net.clear_param_diffs()
    value = net.forward_backward()
    d = (a - b) @ w.blob.data.T
    assert value == pytest.approx((d**2).sum() / 4, rel=1e-5)
    np.testing.assert_allclose(w.blob.diff, d.T @ (a - b) / 2, rtol=1e-4, atol=1e-6)
    assert np.shares_memory(net.node("x").layer.blobs[0].data, net.node("y").layer.blobs[0].data)
    net.forward_backward()  # without clearing, gradients add up
    np.testing.assert_allclose(w.blob.diff, d.T @ (a - b), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("first", "second", "n", "said"), [
    ('param { name: "w" }', 'param { name: "w" }', 4, "'w' is shared with layer 'x', but has shape (4, 3)"),
    ('param { name: "w" lr_mult: 1 }', 'param { name: "w" lr_mult: 2 }', 3, "but has lr_mult 2 against 1"),
])
def test_sharing_that_cannot_be_is_refused(first, second, n, said):
    with pytest.raises(UserError) as error:
        build(INPUT + ip("x", "a", first) + ip("y", "b", second, n))
    assert said in str(error.value)


def test_a_sharer_may_give_what_the_owner_left_open():
    sharer = ip("y", "b", 'param { name: "w" lr_mult: 2 }')
    net = build(INPUT + ip("x", "a", 'param { name: "w" }') + sharer + loss("x", "y"))
    assert [p.lr_mult for p in net.params.params] == [2]


def test_permissive_sharing_takes_another_shape_of_as_many_elements():
    text = INPUT + ip("x", "a", 'param { name: "w" }', 2) + '''layer { name: "in2" type: "Input" top: "c"
        input_param { shape { dim: 1 dim: 2 } } }''' + ip("y", "c", 'param { name: "w" share_mode: PERMISSIVE }', 3)
    net = build(text)
    assert net.node("y").layer.blobs[0].shape == (3, 2)
    assert np.shares_memory(net.node("x").layer.blobs[0].data, net.node("y").layer.blobs[0].data)


def test_all_parameters_lie_in_one_buffer_in_layer_order():
    net = build(INPUT + ip("x", "a") + ip("y", "x") + loss("y", "b"))
    for param, place in zip(net.params.params, net.params.slices):
        assert np.shares_memory(net.params.data, param.blob.data)
        assert np.array_equal(net.params.data[place], param.blob.data.reshape(-1))
        assert np.shares_memory(net.params.diff, param.blob.diff)
    assert [s.start for s in net.params.slices] == sorted(s.start for s in net.params.slices)


def test_ranges_and_hooks():
    relu = 'layer { name: "r" type: "ReLU" bottom: "x" top: "x" }'
    net = build(INPUT + ip("x", "a") + relu + ip("y", "x") + loss("y", "b"))
    net.blobs["a"].data = np.random.RandomState(1).randn(2, 3)
    net.forward(0, 1)
    before = net.blobs["x"].data.copy()
    assert (before < 0).any()  # the fused ReLU is not computed when the range ends before it
    net.forward(2, 2)
    assert np.array_equal(net.blobs["x"].data, np.maximum(before, 0))
    seen = []
    net.before_forward.append(lambda i: seen.append(("f", i)))
    net.after_backward.append(lambda i: seen.append(("b", i)))
    whole = net.forward_backward()
    assert seen == [("f", i) for i in range(5)] + [("b", i) for i in reversed(range(5))]
    assert np.array_equal(net.blobs["x"].data, np.maximum(before, 0))  # computed in one pass, the same numbers
    net.after_forward.append(lambda i: seen.append((i, net.blobs["x"].data.copy())))
    seen.clear()
    assert net.forward() == whole
    shown = {i: v for i, v in seen if isinstance(i, int)}
    assert np.array_equal(shown[1], before)  # whoever looks in between sees what Caffe would show


def test_force_backward_reaches_inputs_but_not_labels():
    labels = '''layer { name: "lab" type: "Input" top: "lab" input_param { shape { dim: 2 } } }
        layer { name: "l" type: "SoftmaxWithLoss" bottom: "x" bottom: "lab" top: "l" }'''
    net = build(INPUT + ip("x", "a") + labels, force=True)
    net.blobs["a"].data = np.ones((2, 3))
    net.forward_backward()
    assert np.abs(net.blobs["a"].diff).max() > 0


def test_a_layer_may_have_a_phase_of_its_own():
    net = build(INPUT + 'layer { name: "d" type: "Dropout" bottom: "a" top: "d" phase: TEST }'
                        'layer { name: "e" type: "Dropout" bottom: "b" top: "e" }')
    for name in "ab":
        net.blobs[name].data = np.ones((2, 3))
    net.forward()
    assert np.all(net.blobs["d"].data == 1)
    assert set(np.unique(net.blobs["e"].data)) <= {0, 2}


def test_tops_that_the_prototxt_does_not_name_are_no_outputs():
    net = build(INPUT + ip("x", "a") + 'layer { name: "l" type: "EuclideanLoss" bottom: "x" bottom: "b" }')
    assert net.output_names == []
    net.blobs["b"].data = np.ones((2, 3))
    assert net.forward_backward() == net.blobs["(automatic)"].data == 1.5


@pytest.mark.parametrize(("text", "said"), [
    (ip("x", "a", "propagate_down: true propagate_down: true"), "propagate_down is given 2 times for 1 bottoms"),
    (ip("x", "a", "loss_weight: 1 loss_weight: 2"), "loss_weight is given 2 times for 1 tops"),
    (ip("x", "a") + ip("x", "b"), "top 'x' is made by an earlier layer already"),
    (ip("x", "a", "param { } param { }"), "param is given 2 times for 1 parameters"),
])
def test_wrong_nets_are_refused(text, said):
    with pytest.raises(UserError) as error:
        build(INPUT + text)
    assert said in str(error.value)
