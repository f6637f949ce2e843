"""Which convolutions run backward in two steps on a device: those that need more at once than any other step does, if
what ReLUs keep instead of their data does not outweigh it."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.memory.run.report import forecast_on_gpu
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2

A_BLOB = 4 * 16 * 32 * 32 * 4  # bytes, of a convolution's top


def net_of(layers, head="p"):
    """Convolutions of equal tops, each with a ReLU in place, between images and a loss."""
    text = """layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {
      shape { dim: 4 dim: 3 dim: 32 dim: 32 } shape { dim: 4 } } }"""
    for bottom, top in zip(["x", *layers[:-1]], layers, strict=True):
        text += f"""layer {{ name: "{top}" type: "Convolution" bottom: "{bottom}" top: "{top}"
          convolution_param {{ num_output: 16 kernel_size: 3 pad: 1 }} }}
        layer {{ name: "r{top}" type: "ReLU" bottom: "{top}" top: "{top}" }}"""
    if head == "n":
        text += f'layer {{ name: "n" type: "LRN" bottom: "{layers[-1]}" top: "n" lrn_param {{ local_size: 3 }} }}'
    text += f"""layer {{ name: "p" type: "Pooling" bottom: "{"n" if head == "n" else layers[-1]}" top: "p"
      pooling_param {{ kernel_size: 2 stride: 2 }} }}
    layer {{ name: "ip" type: "InnerProduct" bottom: "p" top: "ip" inner_product_param {{ num_output: 4 }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}"""
    message = graph.prepare(text_format.Parse(text, caffe_pb2.NetParameter()), 0)
    return build_net(message, Context(0, cpu, np.dtype(np.float32), Stream(1)))


def planned(net, memory="100%"):
    """The plan at the least at which the net trains, or at more."""
    return forecast_on_gpu(net, memory, "auto")


def divided(found):
    return {found.names[layer] for layer in found.steps.divided}


def at_least(layers, head="p"):
    return planned(net_of(layers, head), str(planned(net_of(layers, head)).least))


def test_the_second_convolution_needs_two_of_its_three_arrays_at_once():
    """Gradients of its weights read data and the top's diff; those of its bottom are written when nobody needs these
    data any more, since the ReLU ahead keeps signs."""
    found = at_least(["c1", "c2"])
    assert divided(found) == {"c2"}
    used = [{(tensor.name, bool(tensor.forward)) for tensor in found.iteration.tensors
             if step in (*tensor.forward, *tensor.backward)} for step in range(len(found.iteration.seconds))]
    first, second = found.steps.backward(found.names.index("c2"))
    assert used[first] == {("c1", True), ("c2", False)}
    assert used[second] == {("c1", False), ("c2", False)}
    assert 2 * A_BLOB <= found.least - found.unmovable < 2.1 * A_BLOB


def test_nothing_begins_to_move_between_the_two_steps():
    """They may be in one recording."""
    found = at_least(["c1", "c2"])
    layer = found.names.index("c2")
    assert found.iteration.joined == {found.names.index("rc1"), found.names.index("rc2"),
                                      found.steps.backward(layer)[1]}


@pytest.mark.parametrize(("n_layers", "is_divided"), [(20, True), (40, False)])
def test_signs_of_many_relus_may_outweigh_what_division_saves(n_layers, is_divided):
    """One array of 32 bits an element is saved; each convolution but the first costs a bit an element."""
    layers = [f"c{i}" for i in range(n_layers)]
    assert divided(at_least(layers)) == (set(layers[1:]) if is_divided else set())


def test_nothing_is_divided_where_another_layer_needs_as_much():
    """LRN's backward reads data and its top's diff, and writes its bottom's."""
    found = at_least(["c1", "c2"], head="n")
    assert divided(found) == set()
    assert found.least - found.unmovable >= 3 * A_BLOB


def test_nothing_is_divided_where_all_stays():
    assert divided(planned(net_of(["c1", "c2"]))) == set()
