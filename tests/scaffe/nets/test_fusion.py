"""Batch norm, scale and ReLU computed in one pass: against a naive reference, against the layers one by one, in place
and out of place, whole and in ranges, and in nets that nobody looks into."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TEST, TRAIN
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.memory.problem.activations import data_parts, diff_parts, pass_diffs, reuse_activations
from scaffe.memory.problem.device_bytes import kept_bytes
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.cuda_graphs import Recorded
from scaffe.nets.fusion import fuse_layers, join_backward
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text
from tests.reference import common

SHAPE = (3, 4, 3, 2)
DATA = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 3 dim: 4 dim: 3 dim: 2 } } }'
GAUSS = 'weight_filler { type: "gaussian" std: 1 }'
CONV = ('layer { name: "conv" type: "Convolution" bottom: "x" top: "c" '
        f'convolution_param {{ num_output: 4 kernel_size: 1 {GAUSS} }} }}')
SCALES = {"scale": 'type: "Scale" scale_param { bias_term: true filler { type: "uniform" min: -2 max: 2 } '
                   'bias_filler { type: "uniform" min: -1 max: 1 } }',
          "scale alone": 'type: "Scale" scale_param { filler { type: "uniform" min: -2 max: 2 } }',
          "bias": 'type: "Bias" bias_param { filler { type: "uniform" min: -1 max: 1 } }', "none": ""}
SLOPES = {"relu": "", "leaky": "relu_param { negative_slope: 0.25 }", "none": None}
END = ('layer { name: "ip" type: "InnerProduct" bottom: "last" top: "ip" '
       f'inner_product_param {{ num_output: 2 {GAUSS} }} }}'
       'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip2" top: "loss" }')
TARGET = ('layer { name: "target" type: "DummyData" top: "ip2" dummy_data_param { shape { dim: 3 dim: 2 } '
          'data_filler { type: "constant" value: 0.5 } } }')
CHAINS = [(s, r) for s, r in itertools.product(SCALES, SLOPES) if (s, r) != ("none", "none")]


def chain(scale: str, relu: str, in_place: bool, options: str = "") -> str:
    """A convolution, batch norm, and what is behind; the last blob is named "last" or "c"."""
    names = iter(["c"] * 4 if in_place else ["n", "s", "r"])
    layers = [("bn", f'type: "BatchNorm" batch_norm_param {{ eps: 0.125 {options} }}'), ("scale", SCALES[scale]),
              ("relu", "" if SLOPES[relu] is None else f'type: "ReLU" {SLOPES[relu]}')]
    text, bottom = "", "c"
    for name, what in layers:
        if what:
            top = next(names)
            text += f'layer {{ name: "{name}" bottom: "{bottom}" top: "{top}" {what} }}\n'
            bottom = top
    return DATA + CONV + text + TARGET + END.replace('"last"', f'"{bottom}"')


def build(text: str, phase: int = TRAIN, force: bool = True):
    """A float64 net, its input filled."""
    message = parse_text(text, caffe_pb2.NetParameter)
    message.force_backward = force
    net = build_net(graph.prepare(message, phase), Context(phase, cpu, np.dtype(np.float64), Stream(3)))
    net.blobs["x"].data = np.random.default_rng(0).standard_normal(SHAPE) * 2 + 1
    return net


def passes(net, n: int = 2) -> list[np.ndarray]:
    """Loss, gradients, statistics of some forward and backward passes."""
    found = []
    for _ in range(n):
        net.clear_param_diffs()
        found.append(np.array(net.forward()))
        net.backward()
        net.params.write_all_cleared_diffs()
        found += [net.params.diff.copy(), net.params.data.copy(), net.blobs["x"].diff.copy()]
    return found


def close(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-12)


def fused_names(net) -> list[str]:
    """The layers that batch norm's pass computes."""
    index = net.nodes.index(net.node("bn"))
    return [node.name for node in net.nodes[index:index + 1 + net.nodes[index].n_fused]]


@pytest.mark.parametrize("options", ["", "use_global_stats: true"])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(("scale", "relu"), CHAINS)
def test_one_pass_gives_what_the_layers_give_one_by_one(scale: str, relu: str, in_place: bool, options: str) -> None:
    text = chain(scale, relu, in_place, options)
    nets = {name: build(text) for name in ("unfused", "open", "fused", "arena")}
    nets["unfused"].unfused = True
    fuse_layers(nets["fused"], backward=True)
    reuse_activations(nets["arena"], backward=True)
    for net in nets.values():
        net.node("bn").layer.blobs[1].data[...] = 2  # variances; a factor of 0 would make them 0
        net.node("bn").layer.blobs[2].data[...] = 1
    whole = ["bn"] + ["scale"] * (scale != "none") + ["relu"] * (relu != "none")
    assert fused_names(nets["fused"]) == fused_names(nets["arena"]) == whole
    assert fused_names(nets["open"]) == (whole if in_place else ["bn"])
    expected = passes(nets["unfused"])
    for name in ("open", "fused", "arena"):
        close(passes(nets[name]), expected)
        assert nets[name].node("bn").ran_fused == (len(fused_names(nets[name])) > 1)
    for name in ("c", "ip"):  # what pycaffe shows
        for part in ("data", "diff"):
            close([getattr(nets["open"].blobs[name], part)], [getattr(nets["unfused"].blobs[name], part)])


def test_against_a_naive_reference() -> None:
    net = build(chain("scale", "relu", True))
    net.forward()
    conv, bn, scale = (net.node(name).layer for name in ("conv", "bn", "scale"))
    weights = conv.blobs[0].data.reshape(4, 4)
    x = np.einsum("oc,nchw->nohw", weights, net.blobs["x"].data) + conv.blobs[1].data.reshape(1, 4, 1, 1)
    xn, means, variances = common.batch_norm(x, 0.125)
    factor, offset = (blob.data.reshape(1, 4, 1, 1) for blob in scale.blobs)
    np.testing.assert_allclose(net.blobs["c"].data, np.maximum(xn * factor + offset, 0), rtol=1e-10, atol=1e-12)
    n_rows = SHAPE[0] * SHAPE[2] * SHAPE[3]
    close([blob.data for blob in bn.blobs], [means, np.array(variances) * n_rows / (n_rows - 1), [1]])


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("cut", range(2, 6))
def test_ranges_may_cut_between_the_layers(cut: int, in_place: bool) -> None:
    text = chain("scale", "relu", in_place)
    plain, net = build(text), build(text)
    plain.unfused = True
    expected = passes(plain, 1)
    for forward_cut, backward_cut in ((cut, None), (None, cut)):
        net = build(text)
        net.clear_param_diffs()
        last = len(net.nodes) - 1
        if forward_cut is None:
            loss = net.forward()
        else:
            loss = net.forward(0, forward_cut - 1) + net.forward(forward_cut, last)
        if backward_cut is None:
            net.backward()
        else:
            net.backward(last, backward_cut)
            net.backward(backward_cut - 1, 0)
        net.params.write_all_cleared_diffs()
        close([np.array(loss), net.params.diff, net.params.data, net.blobs["x"].diff], expected)
        net.clear_param_diffs()
        net.backward()  # a second time after one forward
        net.params.write_all_cleared_diffs()
        close([net.params.diff], expected[1:2])


def test_a_layer_that_runs_again_by_itself_is_what_backward_sees() -> None:
    """Forward as a whole, then scale and what follows once more from a blob that the user wrote."""
    plain, net = build(chain("scale", "relu", True)), build(chain("scale", "relu", True))
    plain.unfused = True
    index = net.nodes.index(net.node("scale"))
    for each in (plain, net):
        each.clear_param_diffs()
        each.forward()
        each.blobs["c"].data = np.random.default_rng(5).standard_normal(each.blobs["c"].shape)
        each.forward(index)
        each.backward()
        each.params.write_all_cleared_diffs()
    close([net.params.diff, net.blobs["x"].diff], [plain.params.diff, plain.blobs["x"].diff])


@pytest.mark.parametrize("frozen", ["conv", "scale", "both"])
def test_frozen_layers(frozen: str) -> None:
    text = chain("scale", "relu", True)
    for name in ("conv", "scale"):
        if frozen in (name, "both"):
            text = text.replace(f'name: "{name}"', f'name: "{name}" param {{ lr_mult: 0 }} param {{ lr_mult: 0 }}')
    plain, net, fused = (build(text, force=False) for _ in range(3))
    plain.unfused = True
    fuse_layers(fused, backward=True)
    expected = passes(plain)
    close(passes(net), expected)
    close(passes(fused), expected)


def test_a_scale_that_does_not_let_gradients_through() -> None:
    text = chain("scale", "relu", True).replace('name: "relu"', 'name: "relu" propagate_down: false')
    plain, net = build(text, force=False), build(text, force=False)
    plain.unfused = True
    close(passes(net), passes(plain))


def test_in_a_test_net_nothing_is_kept() -> None:
    text = chain("scale", "relu", True)
    plain, net = build(text, TEST), build(text, TEST)
    reuse_activations(net, backward=False)
    assert kept_bytes(net) < kept_bytes(plain)
    close([np.array(net.forward())], [np.array(plain.forward())])
    assert net.nodes[2].bottoms[0] is net.nodes[2].tops[0]


def test_no_layer_keeps_a_copy_and_lifetimes_cover_the_one_pass() -> None:
    net = build(chain("scale", "relu", True))
    before = kept_bytes(net)
    fuse_layers(net, backward=True)
    assert before - kept_bytes(net) == net.blobs["c"].n_elems * 8  # scale and ReLU kept nothing before
    conv, bn = net.node("conv"), net.node("bn")
    assert conv.tops[0] is bn.bottoms[0] is not bn.tops[0] is net.blobs["c"]
    index, last = net.nodes.index(bn), 2 * len(net.nodes) - 1
    data, diff = ({id(part.blob): part.lifetime for part in parts}[id(bn.bottoms[0])]
                  for parts in (data_parts(net, True), diff_parts(net)))
    assert (data.first, data.last) == (index - 1, last - index + 1)  # from and to convolution
    assert (diff.first, diff.last) == (last - index - 2, last - index + 1)  # written where ReLU's backward is due


def test_a_blob_from_outside_stays_the_inputs() -> None:
    text = (DATA + 'layer { name: "bn" type: "BatchNorm" bottom: "x" top: "x" }'
            + TARGET + END.replace('"last"', '"x"'))
    plain, net = build(text), build(text)
    fuse_layers(net, backward=True)
    assert net.nodes[0].tops[0] is net.blobs["x"]
    for each in (plain, net):
        each.forward()
    close([net.blobs["x"].data], [plain.blobs["x"].data])


def test_hooks_find_parameters_and_gradients_in_time() -> None:
    """A strategy waits for scale's parameters ahead of batch norm's pass, and finds scale's gradients behind it."""
    net = build(chain("scale", "relu", True))
    bn, scale, relu = (net.nodes.index(net.node(name)) for name in ("bn", "scale", "relu"))
    seen, blob, run = [], net.node("scale").layer.blobs[0], net.node("bn").layer.forward_fused
    net.before_forward.append(seen.append)
    net.node("bn").layer.forward_fused = lambda *blobs: seen.append("run") or run(*blobs)
    net.after_backward.append(lambda index: found.update({index: blob.diff.copy()}))
    found: dict[int, np.ndarray] = {}
    net.clear_param_diffs()
    net.forward_backward()
    assert seen.index(bn) < seen.index(scale) < seen.index("run") < seen.index(relu)
    assert found[scale].any()
    np.testing.assert_array_equal(found[scale], blob.diff)


def test_recordings_are_not_cut_within_one_pass() -> None:
    net = build(chain("scale", "relu", True))
    bn, scale, relu = (net.nodes.index(net.node(name)) for name in ("bn", "scale", "relu"))
    starts = {first for first, _, _ in Recorded(net, {scale})._forward_runs}
    assert bn in starts and not starts & {scale, relu}


def test_gradients_of_the_whole_chain_are_differences() -> None:
    """Two-sided differences of the loss by every learned number and the input, in float64."""
    net = build(chain("scale", "leaky", True))
    fuse_layers(net, backward=True)
    net.clear_param_diffs()
    net.forward_backward()
    net.params.write_all_cleared_diffs()
    for blob in (net.blobs["x"], *net.node("scale").layer.blobs, *net.node("conv").layer.blobs):
        flat, gradient = blob.data_flat, blob.diff_flat.copy()
        for i in range(flat.size):
            value, sides = flat[i], []
            for step in (1e-5, -1e-5):
                flat[i] = value + step
                sides.append(net.forward())
            flat[i] = value
            assert gradient[i] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-5, abs=1e-6)


def residual(order: str, scale: str = "scale", relu: str = "relu") -> str:
    """Two blocks, the first with a convolution in its shortcut, the second with none; in place, as ResNet's prototxt.

    ``order``: which bottom of the sums comes first.
    """
    text = DATA
    for block, bottom in (("p", "x"), ("q", "p")):
        short = bottom
        if block == "p":
            short = "short"
            text += CONV.replace('"conv"', '"short"').replace('top: "c"', 'top: "short"')
        text += CONV.replace('"conv"', f'"{block}_conv"').replace('"x"', f'"{bottom}"').replace('"c"', f'"{block}_c"')
        text += f'layer {{ name: "{block}_bn" type: "BatchNorm" bottom: "{block}_c" top: "{block}_c" }}\n'
        if SCALES[scale]:
            text += f'layer {{ name: "{block}_scale" {SCALES[scale]} bottom: "{block}_c" top: "{block}_c" }}\n'
        bottoms = [short, f"{block}_c"][::1 if order == "short first" else -1]
        text += (f'layer {{ name: "{block}_sum" type: "Eltwise" bottom: "{bottoms[0]}" bottom: "{bottoms[1]}" '
                 f'top: "{block}" }}\n')
        if SLOPES[relu] is not None:
            text += f'layer {{ name: "{block}_relu" type: "ReLU" {SLOPES[relu]} bottom: "{block}" top: "{block}" }}\n'
    return text + TARGET + END.replace('"last"', '"q"')


def names_in_one_pass(net, head: str) -> list[str]:
    """The layers that a layer's forward pass computes."""
    index = net.nodes.index(net.node(head))
    return [node.name for node in net.nodes[index:index + 1 + net.nodes[index].n_fused]]


@pytest.mark.parametrize("order", ["short first", "short last"])
@pytest.mark.parametrize(("scale", "relu"), [("scale", "relu"), ("none", "relu"), ("scale", "leaky"), ("bias", "none")])
def test_a_sum_behind_batch_norm_is_in_its_pass(order: str, scale: str, relu: str) -> None:
    text = residual(order, scale, relu)
    plain, nets = build(text), {name: build(text) for name in ("fused", "arena", "late")}
    fuse_layers(nets["fused"], backward=True)
    reuse_activations(nets["arena"], backward=True)
    behind = ["_scale"] * (scale != "none") + ["_sum"] + ["_relu"] * (relu != "none")
    for block in "pq":
        assert names_in_one_pass(nets["arena"], f"{block}_bn") == [block + name for name in ("_bn", *behind)]
    expected = passes(plain, 3)
    for name in ("fused", "arena"):
        close(passes(nets[name], 3), expected)
    reuse_activations(nets["late"], backward=True)  # somebody looks between the layers, from the second pass on
    first = passes(nets["late"], 1)
    nets["late"].after_forward.append(lambda index: None)
    close(first + passes(nets["late"], 2), expected)
    unseen, seen = build(text, TEST), build(text, TEST)
    for net in (unseen, seen):
        net.share_trained_layers(plain)
    reuse_activations(unseen, backward=False)
    close([np.array(unseen.forward())], [np.array(seen.forward())])


class SumsByNumPy:
    """A convolution's plan that can add other gradients to its own."""

    def __init__(self, plan) -> None:
        self._plan = plan

    def __getattr__(self, name: str):
        return getattr(self._plan, name)

    def backward_data_sum(self, gy, w, gx, addends, signs=None) -> None:
        self._plan.backward_data(gy, w, gx)
        gx += sum(addends)
        if signs is not None:
            gx[...] = np.where(signs > 0, gx, 0)

    def takes_sign_bits(self, n_addends) -> bool:
        return False

    def add_thinned(self, *given) -> None:
        """No normalisation of the CPU's reads such gradients."""

    keep_places = prepare_sum = add_thinned


@pytest.mark.parametrize("order", ["short first", "short last"])
def test_a_convolution_writes_the_sum_of_a_splits_gradients(monkeypatch, order: str) -> None:
    """The convolution whose backward is the last: of the first split the shortcut's, of the second the block's own."""
    plain = build(residual(order))
    make = cpu.convolution
    monkeypatch.setattr(cpu, "convolution", lambda spec: SumsByNumPy(make(spec)))
    net = build(residual(order))
    expected = passes(plain, 3)
    reuse_activations(net, backward=True)
    splits = [node for node in net.nodes if node.param.type == "Split"]
    assert [node.layer.is_summed for node in splits] == [True, True]
    summing = [node.name for node in net.nodes if getattr(node.layer, "_addends", ())]
    assert summing == ["short", "q_conv"]
    monkeypatch.setattr(cpu, "add_up", lambda *given: pytest.fail("nobody else adds"))
    close(passes(net, 3), expected)


@pytest.mark.parametrize(("change", "is_summed"), [
    ("", True), ("propagate_down: false", False)])
def test_a_split_with_a_reader_that_gives_no_gradient_adds_by_itself(monkeypatch, change: str, is_summed: bool) -> None:
    make = cpu.convolution
    monkeypatch.setattr(cpu, "convolution", lambda spec: SumsByNumPy(make(spec)))
    text = residual("short first").replace('name: "q_conv"', f'name: "q_conv" {change}')
    net = build(text, force=False)
    reuse_activations(net, backward=True)
    assert [node.layer.is_summed for node in net.nodes if node.param.type == "Split"] == [False, is_summed]


def test_the_sum_of_gradients_includes_relus_backward(monkeypatch) -> None:
    """The ReLU in front of the second block's split, not the last one, which has no split behind it."""
    net = build(residual("short first"))
    reuse_activations(net, backward=True)
    net.forward()
    ran: list[int] = []
    masks: list[bool] = []
    monkeypatch.setattr(cpu, "relu_backward", lambda *given: ran.append(1))
    monkeypatch.setattr(cpu, "add_up", lambda xs, y, signs=None: masks.append(signs is not None))
    net.backward()
    assert (len(ran), masks) == (1, [True, False])  # the input's own split has no ReLU in front of it
    last = len(net.nodes) - 1
    for index in range(last, -1, -1):  # layer by layer, too
        net.backward(index, index)
    assert len(ran) == 2


POOL = """layer { name: "relu" type: "ReLU" bottom: "c" top: "%s" %s } layer { name: "pool" type: "Pooling" bottom: "%s"
  top: "p" pooling_param { kernel_size: 2 stride: 1 pad: 1 pool: %s } }"""
POOLED = ('layer { name: "ip" type: "InnerProduct" bottom: "%s" top: "ip" '
          f'inner_product_param {{ num_output: 2 {GAUSS} }} }}' + TARGET
          + 'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip2" top: "loss" }')
OTHER = """layer { name: "p2" type: "Pooling" bottom: "x" top: "q"
  pooling_param { kernel_size: 2 stride: 1 pad: 1 pool: AVE } }"""
SUM = 'layer { name: "%s" type: "Eltwise" bottom: "%s" bottom: "%s" top: "%s" }'


@pytest.mark.parametrize(("text", "includes"), [
    (POOL % ("c", "", "c", "MAX") + POOLED % "p", True),
    (POOL % ("c", "", "c", "AVE") + POOLED % "p", False),
    (POOL % ("r", "", "r", "MAX") + POOLED % "p", False),
    (POOL % ("c", "relu_param { negative_slope: 0.5 }", "c", "MAX") + POOLED % "p", False),
    (POOL % ("c", "", "c", "MAX") + SUM % ("sum", "p", "p", "s") + POOLED % "s", True),  # a split is between
    (POOL % ("c", "", "c", "MAX") + OTHER + SUM % ("sum", "p", "q", "s") + POOLED % "s", False),
    (POOL % ("c", "", "c", "MAX") + 'layer { name: "f" type: "Flatten" bottom: "p" top: "f" }'
     + SUM % ("sum", "f", "f", "s") + POOLED % "s", True)])
def test_max_pooling_includes_relus_backward(text: str, includes: bool, monkeypatch) -> None:
    """Windows overlap. Nobody reads the ReLU's data in backward then; a gradient that others read is left alone."""
    plain, net = build(DATA + CONV + text), build(DATA + CONV + text)
    pass_diffs(net)
    join_backward(net.nodes)
    relu = net.node("relu")
    assert (net.node("pool").includes is relu) == includes == (not relu.layer.reads_bottoms)
    relu_backward = cpu.relu_backward
    expected, lengths = passes(plain), []
    monkeypatch.setattr(cpu, "relu_backward", lambda x, *rest: lengths.append(x.size) or relu_backward(x, *rest))
    close(passes(net), expected)
    assert (net.blobs["p"].n_elems in lengths) == includes
    for _ in range(2):  # in ranges as well
        net.clear_param_diffs()
        plain.clear_param_diffs()
        for each in (plain, net):
            each.forward()
            for index in range(len(each.nodes) - 1, -1, -1):
                each.backward(index, index)
        close([p.blob.diff for p in net.params.params], [p.blob.diff for p in plain.params.params])
