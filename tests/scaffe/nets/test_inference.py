"""Forward passes with batch norm folded into convolutions: against the layers one by one, whatever is looked at."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import scaffe as caffe
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TEST
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.inference.passes import Inference
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text

FILLED = 'weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "uniform" min: -1 max: 1 }'
SCALE = 'scale_param { bias_term: true filler { type: "uniform" min: -2 max: 2 } bias_filler { type: "uniform" } }'
INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 3 dim: 4 dim: 7 dim: 5 } } }'


def conv(name: str, bottom: str, n: int = 4, more: str = "kernel_size: 3 pad: 1") -> str:
    return (f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" '
            f'convolution_param {{ num_output: {n} {more} {FILLED} }} }}')


def norm(blob: str, top: str = "", scale: str = "") -> str:
    return (f'layer {{ name: "bn_{blob}" type: "BatchNorm" bottom: "{blob}" top: "{top or blob}" '
            'batch_norm_param { eps: 0.01 } }'
            f'layer {{ name: "sc_{blob}" type: "Scale" bottom: "{top or blob}" top: "{scale or blob}" {SCALE} }}')


def relu(blob: str, top: str = "", slope: float = 0) -> str:
    return (f'layer {{ name: "relu_{blob}" type: "ReLU" bottom: "{blob}" top: "{top or blob}" '
            f'relu_param {{ negative_slope: {slope} }} }}')


def add(name: str, *bottoms: str, more: str = "") -> str:
    read = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f'layer {{ name: "{name}" type: "Eltwise" top: "{name}" {read} {more} }}'


def two(more: str = "") -> str:
    """The sum of two convolutions, the second of which may add the first in its own pass."""
    return INPUT + conv("p", "x") + conv("c", "x") + add("y", "p", "c", more=more)


NETS = {  # each with the number of layers that run in a convolution's pass
    "in place": (INPUT + conv("c", "x") + norm("c") + relu("c"), 4),
    "out of place": (INPUT + conv("c", "x") + norm("c", "n", "s") + relu("s", "r", 0.25), 4),
    "residual": (INPUT + conv("p", "x") + norm("p") + conv("c", "x") + norm("c") + add("y", "p", "c") + relu("y"), 8),
    "shortcut": (INPUT + conv("a", "x") + relu("a") + conv("c", "a") + norm("c") + add("y", "a", "c") + relu("y", "z"),
                 7),
    "no operand yet": (INPUT + conv("c", "x") + conv("p", "x", 4, "kernel_size: 1") + add("y", "c", "p"), 3),
    "coefficients": (two("eltwise_param { coeff: 1 coeff: 2 }"), 2),
    "product": (two("eltwise_param { operation: PROD }"), 2),
    "twice the same": (INPUT + conv("c", "x") + add("y", "c", "c"), 1),
    "two readers": (INPUT + conv("c", "x") + norm("c", "n", "s") + add("y", "c", "s"), 1),
    "groups": (INPUT + conv("c", "x", 6, "kernel_size: 3 stride: 2 group: 2 dilation: 2 pad: 2") + norm("c"), 3),
    "sum, then scale": (two() + norm("y") + relu("y"), 3),
    "relu, then scale": (INPUT + conv("c", "x") + relu("c", "r") + norm("r", "n", "s"), 2),
    "depthwise": (INPUT + conv("c", "x").replace('"Convolution"', '"DepthwiseConvolution"') + norm("c") + relu("c"), 4),
    "one axis": (INPUT.replace("dim: 7 dim: 5", "dim: 9") + conv("c", "x") + norm("c"), None),
}


def build(text: str):
    net = build_net(graph.prepare(parse_text(text, caffe_pb2.NetParameter), TEST), Context(TEST, cpu, rng=Stream(5)))
    rng = np.random.default_rng(2)
    for node in net.nodes:
        if node.param.type == "BatchNorm":
            mean, variance, total = node.layer.blobs
            mean.data[...], variance.data[...] = rng.standard_normal(mean.shape), rng.uniform(0.5, 2, variance.shape)
            total.data[...] = 1.5
    fill(net, 1)
    return net


def fill(net, seed: int) -> None:
    net.blobs["x"].data[...] = np.random.default_rng(seed).standard_normal(net.blobs["x"].shape)


def expected(text: str, seed: int = 1, change=lambda net: None) -> dict[str, np.ndarray]:
    """All blobs after the layers have run one by one."""
    net = build(text)
    change(net)
    fill(net, seed)
    net.unfused = True
    net.forward()
    return {name: blob.data.copy() for name, blob in net.blobs.items()}


@pytest.mark.parametrize("name", NETS)
def test_the_blobs_hold_what_they_do_layer_by_layer(name):
    text, n_in_passes = NETS[name]
    net, wanted = build(text), expected(text)
    passes = Inference(net)
    for blob in net.blobs.values():
        if blob is not net.blobs["x"]:
            blob.data[...] = 77
    passes.forward()
    for blob in wanted.keys() - passes.hidden:
        np.testing.assert_allclose(net.blobs[blob].data, wanted[blob], rtol=2e-5, atol=2e-5, err_msg=blob)
    if n_in_passes is not None:
        assert sum(len(run.group.members) for run in passes._convolutions.values()) == n_in_passes


@pytest.mark.parametrize("name", ["out of place", "residual", "shortcut", "two readers"])
def test_shown_blobs_are_never_hidden(name):
    text = NETS[name][0]
    wanted = expected(text)
    for n_shown in (1, 2):
        for shown in itertools.combinations(wanted, n_shown):
            net = build(text)
            passes = Inference(net, shown)
            passes.forward()
            assert not passes.hidden & set(shown)
            for blob in wanted.keys() - passes.hidden:
                np.testing.assert_allclose(net.blobs[blob].data, wanted[blob], rtol=2e-5, atol=2e-5, err_msg=blob)


def test_new_weights_are_taken_when_somebody_says_so():
    def change(net):
        for node in net.nodes:
            for blob in node.layer.blobs:
                blob.data[...] *= 1.5

    text = NETS["residual"][0]
    net = build(text)
    passes = Inference(net)
    passes.forward()
    change(net)
    net.note_written()
    passes.forward()
    np.testing.assert_allclose(net.blobs["y"].data, expected(text, change=change)["y"], rtol=2e-5, atol=2e-5)


def test_another_batch_size_builds_new_plans():
    text = NETS["residual"][0]
    net = build(text)
    passes = Inference(net)
    passes.forward()
    net.blobs["x"].reshape((2, 4, 9, 6))
    fill(net, 3)
    passes.forward()
    other = text.replace("dim: 3 dim: 4 dim: 7 dim: 5", "dim: 2 dim: 4 dim: 9 dim: 6")
    np.testing.assert_allclose(net.blobs["y"].data, expected(other, 3)["y"], rtol=2e-5, atol=2e-5)


# -- through the Python interface ----------------------------------------------------------------------------
@pytest.fixture
def shown(tmp_path):
    """A net of the Python interface whose statistics are not 0, and what its blobs hold layer by layer."""
    text = NETS["shortcut"][0] + relu("z", "end")
    (tmp_path / "net.prototxt").write_text(text)
    net, reference = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST), build(text)
    for node in reference.nodes:
        for mine, theirs in zip(net.params.get(node.name, ()), node.layer.blobs, strict=False):
            mine.data[...] = theirs.data

    def layer_by_layer(seed: int) -> dict[str, np.ndarray]:
        fill(reference, seed)
        reference.unfused = True
        reference.forward()
        return {name: blob.data.copy() for name, blob in reference.blobs.items()}

    return net, reference, layer_by_layer


def hidden_of(net) -> set[str]:
    return set(net._passes._inference.hidden)


def agree(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_a_look_finds_what_caffe_would_show(shown):
    net, _, layer_by_layer = shown
    assert {"c", "y"} <= hidden_of(net)
    fill(net, 1)
    net.forward()
    wanted = layer_by_layer(1)
    fill(net, 2)  # the next input, written before the look
    for name in ("c", "y", "z", "a"):
        agree(net.blobs[name].data, wanted[name])
    net.forward()
    agree(net.blobs["end"].data, layer_by_layer(2)["end"])
    agree(net.blobs["c"].data, layer_by_layer(2)["c"])


def test_an_array_that_is_held_is_kept_up_to_date(shown):
    net, _, layer_by_layer = shown
    held = net.blobs["c"].data
    for seed in (1, 2, 3):
        fill(net, seed)
        net.forward()
        agree(held, layer_by_layer(seed)["c"])


def test_what_is_looked_at_often_is_computed_by_every_pass(shown):
    net, _, layer_by_layer = shown
    for seed in range(4):
        fill(net, seed)
        net.forward()
        agree(net.blobs["y"].data, layer_by_layer(seed)["y"])
    assert "y" not in hidden_of(net)
    assert "c" in hidden_of(net)


def test_printing_all_shapes_once_costs_later_passes_nothing(shown):
    net, _, layer_by_layer = shown
    net.forward()
    assert {name: blob.data.shape for name, blob in net.blobs.items()} == {
        name: blob.shape for name, blob in net._built.blobs.items()}
    fill(net, 1)
    net.forward()
    assert {"c", "y"} <= hidden_of(net)
    agree(net.blobs["end"].data, layer_by_layer(1)["end"])


@pytest.mark.parametrize("layer", ["a", "c", "bn_c", "sc_c"])
def test_weights_that_a_script_writes_count_from_the_next_pass_on(shown, layer):
    net, reference, layer_by_layer = shown
    fill(net, 1)
    net.forward()
    wanted = layer_by_layer(1)
    net.params[layer][0].data[...] += 0.5
    agree(net.blobs["c"].data, wanted["c"])  # still of the weights of that pass
    reference.node(layer).layer.blobs[0].data[...] += 0.5
    net.forward()
    agree(net.blobs["end"].data, layer_by_layer(1)["end"])


def test_weights_written_through_an_array_that_is_held(shown):
    net, reference, layer_by_layer = shown
    held = net.params["c"][0].data[:2]
    net.forward()
    for step in range(3):
        held[...] *= 1.25
        reference.node("c").layer.blobs[0].data[:2] *= 1.25
        fill(net, step)
        net.forward()
        agree(net.blobs["end"].data, layer_by_layer(step)["end"])


def test_shared_weights_are_another_nets(shown, tmp_path):
    net, reference, layer_by_layer = shown
    other = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    other.forward()
    other.share_with(net)
    fill(other, 1)
    other.forward()
    agree(other.blobs["end"].data, layer_by_layer(1)["end"])
    net.params["c"][0].data[...] *= 2
    reference.node("c").layer.blobs[0].data[...] *= 2
    other.forward()
    agree(other.blobs["end"].data, layer_by_layer(1)["end"])


def test_backward_after_a_pass_that_skipped_blobs(shown):
    net, reference, layer_by_layer = shown
    fill(net, 1)
    net.forward()
    layer_by_layer(1)
    for view, built in ((net, reference),):
        view.blobs["end"].diff[...] = built.blobs["end"].diff[...] = 1
    net.backward()
    reference.backward()
    for name in ("a", "c"):
        agree(net.params[name][0].diff, reference.node(name).layer.blobs[0].diff)
    fill(net, 2)
    net.forward()
    agree(net.blobs["c"].data, layer_by_layer(2)["c"])


def test_a_part_of_the_net_reads_blobs_that_were_skipped(shown):
    net, _, layer_by_layer = shown
    fill(net, 1)
    net.forward()
    net.blobs["z"].data[...] = 0
    net.forward(start="relu_y")
    agree(net.blobs["z"].data, layer_by_layer(1)["z"])


def test_what_changes_between_passes_counts_after_passes_in_which_nothing_did():
    text = NETS["residual"][0]
    net = build(text)
    passes = Inference(net)
    for _ in range(3):
        passes.forward()

    def change_all(net):
        for node in net.nodes:
            for blob in node.layer.blobs:
                blob.data[...] *= 1.25

    change_all(net)
    net.note_written()
    for _ in range(2):
        passes.forward()
    np.testing.assert_allclose(net.blobs["y"].data, expected(text, change=change_all)["y"], rtol=2e-5, atol=2e-5)
    other = text.replace("dim: 3 dim: 4 dim: 7 dim: 5", "dim: 2 dim: 4 dim: 9 dim: 6")
    net.blobs["x"].reshape((2, 4, 9, 6))
    fill(net, 3)
    for _ in range(2):
        passes.forward()
    np.testing.assert_allclose(net.blobs["y"].data, expected(other, 3, change=change_all)["y"], rtol=2e-5, atol=2e-5)


def test_plans_are_updated_after_a_pass_that_failed(monkeypatch):
    net = build(NETS["residual"][0])
    passes = Inference(net)
    passes.forward()
    run = next(iter(passes._convolutions.values()))
    updates = []
    monkeypatch.setattr(run, "_update_plan", lambda: updates.append(1))
    passes.forward()
    assert not updates
    plan = run.plan
    run.plan = None
    passes._prepared.forget()
    monkeypatch.setattr(run, "_run_alone", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        passes.forward()
    run.plan = plan
    passes.forward()
    assert updates
