"""The numbers of steps against a list of all in their order, and a net's divided backward against the whole one."""

import random

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu, extents
from scaffe.memory.problem import activations, tensors
from scaffe.memory.problem.activations import divide_backward, reduce_saved_activations
from scaffe.memory.problem.layer_groups import compute_by_rows, single_layers, spread
from scaffe.memory.problem.tensors import activation_tensors
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.steps import Steps
from scaffe.proto import caffe_pb2

NET = """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 5 dim: 3 dim: 20 dim: 21 } } }
layer { name: "a" type: "Convolution" bottom: "x" top: "a" convolution_param { num_output: 8 kernel_size: 3 %s } }
layer { name: "ra" type: "ReLU" bottom: "a" top: "a" }
layer { name: "b" type: "Convolution" bottom: "a" top: "b"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 %s } }
layer { name: "rb" type: "ReLU" bottom: "b" top: "b" }
layer { name: "up" type: "Deconvolution" bottom: "b" top: "up"
  convolution_param { num_output: 4 kernel_size: 2 stride: 2 %s } }
layer { name: "still" type: "Convolution" bottom: "up" top: "still" param { lr_mult: 0 } param { lr_mult: 0 }
  convolution_param { num_output: 2 kernel_size: 1 %s } }
layer { name: "loss" type: "Reduction" bottom: "still" top: "loss" loss_weight: 0.5
  reduction_param { operation: SUMSQ } }""".replace(
    "%s", 'weight_filler { type: "gaussian" std: 1 }')


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_numbered_in_their_order(seed):
    rng = random.Random(seed)
    n = rng.randint(1, 9)
    divided = frozenset(rng.sample(range(n), rng.randint(0, n)))
    updates = {layer: rng.randint(1, 3) for layer in rng.sample(range(n), rng.randint(0, n))}
    behind = {layer: tuple(sorted((rng.randint(0, layer) for _ in range(rng.randint(1, 4))), reverse=True))
              for layer in rng.sample(range(n), rng.randint(0, n))}
    order = [("forward", layer) for layer in range(n)]
    for layer in reversed(range(n)):
        order += [("backward", layer)] * (1 + (layer in divided)) + [("update", layer)] * updates.get(layer, 0)
        order += [(owner, block) for owner in sorted(behind, reverse=True) for block, place in enumerate(behind[owner])
                  if place == layer]
    steps = Steps(n, divided, updates, behind)
    assert steps.n_steps == len(order)
    for layer in range(n):
        assert list(steps.backward(layer)) == [i for i, what in enumerate(order) if what == ("backward", layer)]
        assert list(steps.updates(layer)) == [i for i, what in enumerate(order) if what == ("update", layer)]
        assert list(steps.rows(layer)) == [order.index((layer, block)) for block in range(len(behind.get(layer, ())))]
        assert steps.layer_of(steps.backward(layer)[0]) == layer
        at = [*steps.backward(layer), *steps.updates(layer)][-1] + 1
        assert steps.blocks(layer) == order[at:at + len(steps.blocks(layer))]
        assert {steps.layer_of(at + i) for i in range(len(steps.blocks(layer)))} <= {layer}
    assert steps.layer_of(len(order)) < 0


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_spread_over_backward(seed):
    """None before its layer's backward or a block before it, and each behind the layer that ends nearest to when it is
    due."""
    rng = random.Random(seed)
    n = rng.randint(1, 12)
    seconds = {layer: rng.uniform(0, 2) for layer in range(n)}
    n_blocks = {layer: rng.randint(1, 5) for layer in rng.sample(range(n), rng.randint(0, n))}
    behind = spread(n_blocks, seconds)
    assert {layer: len(places) for layer, places in behind.items()} == n_blocks
    flat = [(owner, place) for owner in sorted(behind, reverse=True) for place in behind[owner]]
    first = max(n_blocks, default=0)
    for number, (owner, place) in enumerate(flat):
        due = sum(seconds[layer] for layer in range(first)) * number / len(flat)
        ended = sum(seconds[layer] for layer in range(place, first))
        assert place <= flat[max(number - 1, 0)][1]
        others = [abs(sum(seconds[layer] for layer in range(other, first)) - due) for other in range(owner + 1)]
        assert place <= owner and abs(ended - due) <= min(others) + 1e-9


def test_without_divided_layers_backward_of_layer_i_is_step_2n_minus_1_minus_i():
    assert [list(Steps(4).backward(i)) for i in range(4)] == [[7], [6], [5], [4]]


def built():
    param = text_format.Parse(NET, caffe_pb2.NetParameter())
    return build_net(graph.prepare(param, 0), Context(0, cpu, rng=Stream(1)))


class Seen:
    """A tier that notes the calls."""

    def __init__(self):
        self.calls = []

    def before(self, step):
        self.calls.append(("before", step))

    def recompute(self, step):
        self.calls.append(("again", step))

    def after(self, step):
        self.calls.append(("after", step))


def gradients(net):
    net.blobs["x"].data[...] = np.random.default_rng(2).standard_normal(net.blobs["x"].shape)
    net.forward()
    net.clear_param_diffs()
    net.backward()
    return net.params.diff.copy()


def test_divided_backward_has_the_bits_of_the_whole_and_its_tiers_see_every_step(monkeypatch):
    monkeypatch.setattr(tensors, "LEAST_BYTES", 1)
    whole, net = built(), built()
    expected = gradients(whole)
    divide_backward(net)
    activations.use_sign_masks(net)
    assert {net.nodes[i].name for i in net.steps.divided} == {"b", "up"}  # "a" passes nothing on, "still" is fixed
    net.tiers.append(seen := Seen())
    np.testing.assert_array_equal(gradients(net), expected)
    assert np.abs(expected).max() > 0
    back = [call for call in seen.calls if call[1] >= len(net.nodes)]
    assert back == [(what, step) for step in range(len(net.nodes), net.steps.n_steps)
                    for what in ("before", "again", "after")]


def test_data_are_read_in_the_first_step_and_diffs_written_in_the_second(monkeypatch):
    monkeypatch.setattr(tensors, "LEAST_BYTES", 1)
    net = built()
    divide_backward(net)
    activations.use_sign_masks(net)
    found = {(each.tensor.name, each.is_diff): each.tensor for each in activation_tensors(net)}
    layer = {node.name: i for i, node in enumerate(net.nodes)}
    read, written = net.steps.backward(layer["b"])
    assert found["a", False].backward == (read,)  # the ReLU has its signs
    assert found["a", True].backward == (written, *net.steps.backward(layer["ra"]), *net.steps.backward(layer["a"]))
    assert found["b", True].backward == (net.steps.backward(layer["up"])[1], *net.steps.backward(layer["rb"]), read,
                                         written)


@pytest.mark.parametrize(("least", "limit", "is_divided"), [(94, 100, False), (96, 100, True), (200, 100, True)])
def test_backward_is_divided_where_the_limit_is_near(least, limit, is_divided):
    net = built()
    reduce_saved_activations(net, limit, lambda: least)
    assert bool(net.steps.divided) == is_divided


def test_what_layers_with_blocks_of_rows_read_is_not_computed_again(monkeypatch):
    """Layers before them may have been updated by then."""
    monkeypatch.setattr(tensors, "LEAST_BYTES", 1)
    monkeypatch.setattr(extents, "BLOCK_BYTES", 1)
    text = NET + """
      layer { name: "ip" type: "InnerProduct" bottom: "b" top: "ip" inner_product_param { num_output: 33 } }
      layer { name: "l2" type: "Reduction" bottom: "ip" top: "l2" loss_weight: 1 }"""
    net = build_net(graph.prepare(text_format.Parse(text, caffe_pb2.NetParameter()), 0), Context(0, cpu, rng=Stream(1)))
    for runs, again in (((), {"a", "b"}), (single_layers(net)[-1:], {"a"})):
        compute_by_rows(net, runs)
        assert len(net.steps.behind) == len(runs)
        found = {each.tensor.name for each in activation_tensors(net) if each.tensor.recompute and not each.is_diff}
        assert found & {"a", "b"} == again
