"""The planner against a search of all plans, against closed forms, and against what nets of prototxts can do."""

import itertools
import math
import random
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from google.protobuf import text_format

from scaffe.cli.commands.summary import main
from scaffe.collectives.model.machine import Machine
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.layers.base.layer import TRAIN
from scaffe.layers.base.random import Stream
from scaffe.nets.devices import load_kernels
from scaffe.nets.setup import Selection, make_context, make_net
from scaffe.proto import caffe_pb2
from scaffe.training.partition.options import best_of_all, plan_lines, plan_of, predicted_seconds
from scaffe.training.partition.planner.cost_model import Ranks
from scaffe.training.partition.planner.image_shares import Share as Cut
from scaffe.training.partition.planner.search import best_plan
from scaffe.training.partition.planner.shapes import LayerShape, shapes_of

IMAGES, FILTERS = ("replicated", "channels", "bands"), ("replicated", "outputs", "bands")
FC, FOLLOWER, LOSS, OTHER = (("replicated", "outputs", "inputs"), ("replicated", "columns"),
                             ("replicated", "classes"), ("replicated",))
PLACED = ("replicated", "one_rank")
LEARNING = (FC, FILTERS, PLACED)
NEEDS = {"replicated": ["rows", "rows"], "outputs": ["whole"], "inputs": ["columns"], "columns": ["columns"] * 2,
         "classes": ["columns", "whole"], "channels": ["channels"] * 2, "bands": ["bands"] * 2,
         "one_rank": ["one"] * 2}
GIVES = {"replicated": "rows", "outputs": "columns", "inputs": "rows", "columns": "columns", "classes": "rows",
         "channels": "channels", "bands": "bands", "one_rank": "one"}


CUTS = ("columns", "channels", "bands", "one")


def machine(latency, bandwidth):
    return Machine(latency, bandwidth, latency, bandwidth, 0, 0, 1e9)


def random_net(rng):
    """Layers over a net with branches and sums; every blob has one reader at most."""
    layers = [LayerShape("data", "Data", (), ("x", "label"), n_outputs=rng.randrange(4, 60))]
    width, lies_open = {"x": layers[0].n_outputs, "label": 1}, ["x"]
    for n in range(rng.randrange(2, 7)):
        bottom = lies_open.pop(rng.randrange(len(lies_open)))
        kinds = rng.choice((FC, FC, FOLLOWER, OTHER, IMAGES, FILTERS, PLACED))
        out = rng.randrange(4, 80) if kinds in LEARNING else width[bottom]
        shares = {kind: Cut(rng.randrange(4, 20), rng.randrange(9)) for kind in kinds[1:]}
        bottoms = (bottom,)
        if kinds in (FOLLOWER, IMAGES) and lies_open and width[lies_open[0]] == width[bottom]:
            bottoms = (bottom, lies_open.pop(0))
        tops = (f"t{n}",) if rng.random() < 0.7 else (f"t{n}", f"u{n}")
        layer_type = "Convolution" if kinds is FILTERS else "T"
        layers.append(LayerShape(f"l{n}", layer_type, bottoms, tops, kinds, tuple(width[b] for b in bottoms),
                                 width[bottom] * out if kinds in LEARNING else 0, out, 2.0 * width[bottom] * out,
                                 (n > 0,) * len(bottoms), shares=shares if kinds in (IMAGES, FILTERS) else {}))
        width.update(dict.fromkeys(tops, out))
        lies_open += tops
    scores = lies_open[0]
    layers.append(LayerShape("loss", "SoftmaxWithLoss", (scores, "label"), ("loss",), LOSS, (width[scores], 1), 0, 1,
                             0.0, (True, False)))
    return layers


def seconds(layers, kinds, ranks):
    """A plan's time from the formulas written out once more, message by message."""
    k, r, b, link = ranks.n_partitions, ranks.n_replicas, ranks.n_images, ranks.machine
    total, lies, doublings = 0.0, {}, math.ceil(math.log2(k))

    def send(n_bytes, n_messages, n_summed=0.0):
        return n_bytes / link.inter_bandwidth + n_messages * link.inter_latency + n_summed / link.sum_bandwidth

    def all_reduce(n_bytes, n):
        sent = n_bytes * (n - 1) / n
        return send(2 * sent, 2 * math.ceil(math.log2(n)), sent) if n > 1 and n_bytes else 0.0

    for layer, kind in zip(layers, kinds, strict=True):
        split = {"outputs": layer.n_outputs, "inputs": layer.widths[0] if layer.widths else 0}.get(kind)
        if kind in layer.shares:
            split = layer.shares[kind].length
        share = math.ceil(split / k) / split if split else 1 if kind == "one_rank" else 1 / k
        total += layer.multiply_adds * b * k * share / ranks.multiply_adds_per_second
        is_own = kind in ("outputs", "inputs", "channels", "one_rank")
        own = layer.n_parameters * 4 / (k if is_own else 1)
        total += (0 if is_own else all_reduce(own, k)) + all_reduce(own, r)
        for i, (bottom, width) in enumerate(zip(layer.bottoms, layer.widths, strict=True)):
            came, need, times = lies.pop(bottom), NEEDS[kind][i], 1 + layer.wants_gradient[i]
            if came != need and k > 1:
                through = ["rows"] if came in CUTS and need in CUTS else []  # from one cut to another over own images
                for step in itertools.pairwise([came, *through, need]):
                    part = 1 if {"whole", "one"} & {*step} else k
                    total += times * send(4 * b * width * (k - 1) / part, doublings if "whole" in step else k - 1)
        if kind == "inputs":
            partial = 4 * (k - 1) * b * layer.n_outputs
            total += send(2 * partial, 2 * doublings, partial)
        if kind == "classes":
            total += all_reduce(3 * b * k * 4, k)
        if kind in layer.shares and layer.shares[kind].halo:
            times = 1 + any(layer.wants_gradient)
            total += send(times * layer.shares[kind].halo * b * k * 4, times)
        gives = "channels" if layer.type == "Convolution" and kind == "outputs" else GIVES[kind]
        lies.update(dict.fromkeys(layer.tops, gives))
    return total


@pytest.mark.parametrize("seed", range(25))
def test_no_plan_of_all_is_faster(seed):
    rng = random.Random(seed)
    layers, k = random_net(rng), rng.choice((2, 3, 4))
    ranks = Ranks(k * rng.choice((1, 2, 3)), k, rng.choice((1, 3, 16)), 1, machine(rng.choice((0, 1e-5)), 1e8),
                  10 ** rng.uniform(7, 10))
    plan = best_plan(layers, ranks)
    every = itertools.product(*(layer.allowed(k) for layer in layers))
    least = min(seconds(layers, kinds, ranks) for kinds in every)
    assert plan.total.seconds == pytest.approx(least, rel=1e-9)
    assert seconds(layers, list(plan.shardings.values()), ranks) == pytest.approx(least, rel=1e-9)


def caffenet():
    """The layers of CaffeNet that matter: 2.3 M parameters in convolutions, 58.6 M in the rest."""
    def layer(name, kinds, bottom, width, n_outputs, n_parameters):
        return LayerShape(name, "T", (bottom,), (name,), kinds, (width,), n_parameters, n_outputs,
                          3.0 * width * n_outputs, (True,))

    return [LayerShape("data", "Data", (), ("data", "label"), n_outputs=154587),
            LayerShape("conv", "Convolution", ("data",), ("conv",), OTHER, (154587,), 2_334_080, 9216, 2e9, (False,)),
            layer("fc6", FC, "conv", 9216, 4096, 9217 * 4096), layer("fc7", FC, "fc6", 4096, 4096, 4097 * 4096),
            layer("fc8", FC, "fc7", 4096, 1000, 4097 * 1000),
            LayerShape("loss", "SoftmaxWithLoss", ("fc8", "label"), ("loss",), LOSS, (1000, 1), 0, 1, 0.0,
                       (True, False))]


def test_caffenet_on_slow_links_is_the_hybrid():
    """Krizhevsky's: convolutions replicated, fully connected layers split; a fortieth of the gradients travels."""
    ranks = Ranks(4, 1, 64, 1, machine(1e-5, 0.1195e9), 1e12)
    plan, pure = best_of_all(caffenet(), ranks), best_plan(caffenet(), ranks)
    assert plan.n_partitions == 4
    assert plan.shardings["conv"] == "replicated"
    assert {plan.shardings[name] for name in ("fc6", "fc7", "fc8")} <= {"outputs", "inputs"}
    assert pure.total.n_bytes == pytest.approx(1.5 * 4 * (2_334_080 + 9217 * 4096 + 4097 * 5096))  # 2 (P - 1) / P
    assert pure.total.n_bytes / plan.total.n_bytes > 5


def test_fast_links_and_large_batches_leave_data_parallelism():
    plan = best_of_all(caffenet(), Ranks(4, 1, 10**6, 1, machine(1e-6, 1e8), 1e12))
    assert not plan.is_split


def test_one_rank_has_nothing_to_send():
    assert best_plan(caffenet(), Ranks(1, 1, 64, 1, machine(1, 1), 1e9)).total.n_bytes == 0


def test_replicas_exchange_the_parts_alone():
    """Two replicas of two partitions: fc6's gradient of half its parameters travels once between the replicas."""
    layers = [replace(layer, pinned="outputs" if layer.name == "fc6" else "replicated") for layer in caffenet()]
    plan = best_plan(layers, Ranks(4, 2, 8, 1, machine(0, 1e8), 1e12))
    gradient, gathered, scattered = 9217 * 4096 / 2, 8 * 9216, 8 * 9216
    assert plan.costs["fc6"].n_bytes == pytest.approx(4 * (gradient + gathered + scattered))


@pytest.mark.parametrize(("changes", "line"), [
    ({"pinned": "classes"},
     "layer 'fc6' (T): parallel_param pins it to CLASSES; it can be REPLICATED, OUTPUTS, INPUTS"),
    ({"pinned_partitions": 3}, "layer 'fc6' (T): parallel_param wants 3 partitions, a replica has 2"),
    ({"pinned": "outputs", "n_outputs": 1}, "layer 'fc6' (T): 1 outputs cannot be split into 2 partitions"),
    ({"shardings": ("replicated", "bands"), "pinned": "bands", "shares": {"bands": Cut(1)}},
     "layer 'fc6' (T): 1 rows of pixels cannot be split into 2 partitions"),
    ({"shardings": ("replicated", "channels"), "pinned": "channels", "shares": {"channels": Cut(6, together=(3, 6))}},
     "layer 'fc6' (T): its groups of channels cannot be shared out to 2 partitions"),
])
def test_a_pin_that_cannot_be_is_one_line(changes, line):
    layers = [replace(layer, **changes) if layer.name == "fc6" else layer for layer in caffenet()]
    with pytest.raises(UserError) as caught:
        best_plan(layers, Ranks(4, 2, 8, 1, machine(0, 1e8), 1e12))
    assert str(caught.value) == line


def test_partitions_that_leave_uneven_replicas_are_refused():
    pinned = [replace(layer, pinned_partitions=3) for layer in caffenet()]
    with pytest.raises(UserError) as caught:
        best_of_all(pinned, Ranks(4, 1, 8, 1, machine(0, 1e8), 1e12))
    assert str(caught.value) == "parallel_param wants 3 partitions, which do not divide 4 ranks"


def test_uneven_replicas_are_refused():
    with pytest.raises(UserError, match=r"-partitions 3 does not divide 4 ranks into replicas of equal size"):
        plan_of("3", caffenet(), Ranks(4, 1, 8, 1, machine(0, 1e8), 1e12))


def test_more_partitions_than_outputs_leave_a_layer_replicated():
    layers = [replace(layer, n_outputs=3) if layer.name == "fc8" else layer for layer in caffenet()]
    plan = best_plan(layers, Ranks(4, 4, 64, 1, machine(0, 1e6), 1e12))
    assert plan.shardings["fc8"] in ("replicated", "inputs")


def test_a_layer_that_nothing_splits_goes_to_one_rank_where_its_gradient_would_cost_more():
    layers = [LayerShape("data", "Data", (), ("x",), n_outputs=10),
              LayerShape("big", "T", ("x",), ("y",), PLACED, (10,), 10**6, 40, 1.0, (False,)),
              LayerShape("narrows", "T", ("y",), ("z",), PLACED, (40,), 0, 10, 0.0, (True,)),
              LayerShape("loss", "T", ("z",), (), OTHER, (10,), 0, 0, 0.0, (True,))]
    kinds = best_plan(layers, Ranks(4, 4, 8, 1, machine(1e-6, 1e8), 1e12)).shardings
    assert kinds == {"data": "replicated", "big": "one_rank", "narrows": "one_rank", "loss": "replicated"}


def test_the_table_has_both_totals():
    ranks = Ranks(4, 1, 64, 1, machine(0, 1e8), 1e12)
    plan, pure = best_of_all(caffenet(), ranks), best_plan(caffenet(), ranks)
    lines = plan_lines(caffenet(), plan, pure, ranks)
    assert lines[0] == "4 ranks: 1 replica(s) of 4 partition(s)"
    assert f"{pure.total.n_bytes:,.0f}" in lines[-3]
    assert f"{plan.total.n_bytes:,.0f}" in lines[-3]
    assert f"{predicted_seconds(caffenet(), plan, ranks):.3f} s" in lines[-1]


NET = """
layer { name: "x" type: "Input" top: "x" top: "label" input_param { shape { dim: 6 dim: 3 dim: 4 dim: 4 }
  shape { dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param { num_output: 5 kernel_size: 3 } }
layer { name: "relu0" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 7 } }
layer { name: "relu" type: "ReLU" bottom: "fc" top: "fc" }
layer { name: "tied" type: "InnerProduct" bottom: "fc" top: "tied" param { name: "w" } inner_product_param {
  num_output: 4 } parallel_param { split: REPLICATED } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "tied" bottom: "label" top: "loss" }
"""


def test_summary_prints_the_plan_of_a_prototxt(tmp_path, capsys):
    (tmp_path / "net.prototxt").write_text(NET)
    assert main([str(tmp_path / "net.prototxt"), "-ranks", "4", "-partitions", "2", "-link_bandwidth", "1e6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("4 ranks: 2 replica(s) of 2 partition(s)")
    assert [line.split()[0] for line in lines[start + 2:-2]] == ["conv", "fc", "tied", "total"]
    assert lines[-2].startswith("predicted: ")


def test_summary_draws_the_plan(tmp_path):
    pinned = "num_output: 7 } parallel_param { split: INPUTS }"
    (tmp_path / "net.prototxt").write_text(NET.replace("num_output: 7 }", pinned))
    assert main([str(tmp_path / "net.prototxt"), "-ranks", "4", "-partitions", "2", "-output",
                 str(tmp_path / "plan.svg")]) == 0
    picture = ElementTree.parse(tmp_path / "plan.svg").getroot()
    words = [element.text for element in picture.iter() if element.text]
    assert "4 ranks: 2 replica(s) of 2 partition(s)" in words
    assert "InnerProduct inputs" in words
    assert "rows \u2192 columns" in words
    assert sum(element.tag.endswith("rect") for element in picture.iter()) == 1 + 1 + 7  # paper, totals, layers


def test_what_layers_of_a_prototxt_can_do():
    message = text_format.Parse(NET, caffe_pb2.NetParameter())
    context = make_context(load_kernels(1), Stream(0), Share(), 0)
    shapes = {shape.name: shape for shape in shapes_of(make_net(message, Selection(TRAIN), context, "net"))}
    assert {name: shape.shardings for name, shape in shapes.items()} == {
        "x": OTHER, "conv": (*FILTERS, "one_rank"), "relu0": (*IMAGES, "one_rank"), "fc": (*FC, "one_rank"),
        "relu": (*FOLLOWER, "one_rank"), "tied": OTHER, "loss": LOSS}
    assert shapes["conv"].shares == {"outputs": Cut(5), "bands": Cut(2, halo=2 * 3 * 4)}
    assert shapes["fc"].widths == (20,)
    assert shapes["fc"].n_parameters == 20 * 7 + 7
    assert shapes["fc"].multiply_adds == 3 * 20 * 7
    assert shapes["conv"].wants_gradient == (False,)
    assert shapes["tied"].pinned == "replicated"
