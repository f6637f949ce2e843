"""``summary -memory``: amounts, the table, the picture, refusals; and a net's arrays against shapes counted by hand."""

import re

import pytest
from google.protobuf import text_format

from scaffe.cli import main as cli
from scaffe.errors import UserError
from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.mapped_memory import PAGE_BYTES, rounded
from scaffe.memory.options import n_bytes, shown
from scaffe.memory.problem import layer_groups
from scaffe.memory.problem.costs import blobs_outside, kept_by_layers
from scaffe.memory.problem.iteration import Recompute
from scaffe.memory.problem.tensors import activation_tensors
from scaffe.memory.run.report import forecast, forecast_on_gpu
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2

NET = """layer { name: "in" type: "Input" top: "x" top: "label" input_param {
  shape { dim: 16 dim: 3 dim: 32 dim: 32 } shape { dim: 16 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 8 kernel_size: 3 pad: 1 } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "d" type: "Convolution" bottom: "p" top: "d" convolution_param { num_output: 8 kernel_size: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "d" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""


@pytest.mark.parametrize(("text", "expected"), [("1234", 1234), ("2GB", 2 * 10**9), ("1.5 MiB", 3 << 19), ("40%", 80),
                                                ("7kb", 7000), ("3B", 3)])
def test_amounts(text, expected):
    assert n_bytes(text, 200) == expected


@pytest.mark.parametrize("text", ["", "much", "0", "-1GB", "2 XB", "0%", "GB"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match="amount of memory such as 2GB"):
        n_bytes(text, 200)


def test_parameters_and_histories_of_large_layers_are_planned(monkeypatch):
    monkeypatch.setattr(layer_groups, "LEAST_BYTES", 1 << 14)  # ip alone: 4 * 8 * 16 * 16 weights and 4 biases
    net = build_net(graph.prepare(text_format.Parse(NET, caffe_pb2.NetParameter()), 0), Context(0, cpu, rng=Stream(1)))
    found = {part.name: part for part in forecast(net, "99%", "auto").iteration.tensors if part.name.startswith("ip ")}
    w, d, h = found["ip parameters"], found["ip gradients"], found["ip history"]
    assert (w.forward, w.backward) == ((5,), (8, 9, 10))  # the history's update, and those who get the parameters then
    assert (d.forward, d.backward, h.forward, h.backward) == ((), (8, 9, 10), (), (9,))
    assert (w.is_persistent, h.is_persistent, d.is_persistent) == (True, True, False)
    whole = (4 * 8 * 16 * 16 + 4) * 4
    assert all(whole - 2 * PAGE_BYTES < part.n_bytes <= whole and part.n_bytes % PAGE_BYTES == 0 for part in (w, d, h))


FILLED = """layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 16 dim: 3 dim: 32 dim: 32 } shape { dim: 16 }
  data_filler { type: "%s" } data_filler { type: "constant" } } }
"""


@pytest.mark.parametrize(("filler", "may_be_offloaded"), [("gaussian", True), ("constant", False)])
def test_images_may_leave_where_each_forward_brings_others(filler, may_be_offloaded):
    """A constant filler fills them once."""
    param = text_format.Parse(FILLED % filler + NET.split("\n", 2)[2], caffe_pb2.NetParameter())
    net = build_net(graph.prepare(param, 0), Context(0, cpu, rng=Stream(1)))
    planned = activation_tensors(net)
    found = [(each.tensor.forward, each.tensor.backward, each.tensor.recompute) for each in planned
             if each.tensor.name == "x"]
    assert found == ([((0, 1, 2), (12,), None)] if may_be_offloaded else [])  # the ReLU runs with the convolution
    assert blobs_outside(net, planned, True) >= 4 * 16 * 3 * 32 * 32 * (not may_be_offloaded)
    assert not [each for each in activation_tensors(net, shown=["x"]) if each.tensor.name == "x"]


def test_amounts_for_people():
    assert [shown(n) for n in (12, 1234, 5.5e6, 2e9, 3.21e12)] == ["12 B", "1.23 KB", "5.5 MB", "2 GB", "3.21 TB"]


def test_the_arrays_of_a_net():
    """Layers: in 0, c 1, r 2 (in place), p 3, d 4, ip 5, loss 6; backward of layer i is step 13 - i."""
    net = build_net(graph.prepare(text_format.Parse(NET, caffe_pb2.NetParameter()), 0), Context(0, cpu, rng=Stream(1)))
    found = {(each.tensor.name, each.is_diff): each.tensor for each in activation_tensors(net)}
    c, p, d = (found[name, False] for name in "cpd")
    assert c.n_bytes == rounded(16 * 8 * 32 * 32 * 4) and p.n_bytes == d.n_bytes == rounded(16 * 8 * 16 * 16 * 4)
    assert (c.forward, c.backward) == ((1, 2, 3), (11,))  # the ReLU's backward alone reads it, not the pooling's
    assert (p.forward, p.backward) == ((3, 4), (9,))
    assert (d.forward, d.backward) == ((4, 5), (8,))
    assert c.recompute == Recompute((1,), ())  # x is always there, the ReLU runs with the convolution
    numbers = {each.tensor.name: i for i, each in enumerate(activation_tensors(net)) if not each.is_diff}
    assert p.recompute == Recompute((3,), (numbers["c"],)) and d.recompute == Recompute((4,), (numbers["p"],))
    assert found["c", True].backward == (10, 11, 12)
    assert ("x", False) not in found and ("loss", False) not in found


def test_positions_of_maxima_are_counted():
    """They lie in what the kernels' ``zeros`` made, a view of slightly more."""
    net = build_net(graph.prepare(text_format.Parse(NET, caffe_pb2.NetParameter()), 0), Context(0, cpu, rng=Stream(1)))
    places = 16 * 8 * 16 * 16  # a byte each
    turned = 4 * places  # the product's bottom, in Caffe's order
    assert places + turned <= kept_by_layers(net) < 2 * (places + turned)


@pytest.mark.parametrize(("front", "keeps"), [("Power", True), ("BatchNorm", False)])
def test_what_an_in_place_scale_would_keep_is_counted_where_it_is_kept(front, keeps):
    """Behind batch norm it is computed in that one's pass, and keeps nothing unless it runs alone."""
    text = NET.replace('layer { name: "r" type: "ReLU" bottom: "c" top: "c" }', f"""
layer {{ name: "f" type: "{front}" bottom: "c" top: "n" }} layer {{ name: "s" type: "Scale" bottom: "n" top: "n" }}
layer {{ name: "r" type: "ReLU" bottom: "n" top: "c2" }}""").replace('bottom: "c" top: "p"', 'bottom: "c2" top: "p"')
    net = build_net(graph.prepare(text_format.Parse(text, caffe_pb2.NetParameter()), 0), Context(0, cpu, rng=Stream(1)))
    counted, copy = kept_by_layers(net), 16 * 8 * 32 * 32 * 4
    net.forward()
    net.backward()
    assert (counted > copy) == keeps and kept_by_layers(net) < counted + 1000
    scale = next(node.layer for node in net.nodes if node.name == "s")
    assert (scale.kept.memory is not None) == keeps


def test_summary_shows_the_plan_and_draws_it(tmp_path, capfd):
    (tmp_path / "net.prototxt").write_text(NET)
    picture = tmp_path / "memory.svg"
    assert cli.main(["summary", str(tmp_path / "net.prototxt"), "-memory", "90%", "-output", str(picture)]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^p +131,072 +(keep|move|recompute) +d +d$", out, re.MULTILINE)
    assert not re.search(r"^c +524,288", out, re.MULTILINE)  # the ReLU keeps its signs, and nobody else reads it
    assert re.search(r"training: .* without a limit, .* at most within .* do not move; least ", out)
    assert "predicted time" in out
    text = picture.read_text()
    assert all(word in text for word in ("<svg", "limit", "in memory", "does not move"))


def test_summary_plans_for_a_gpu(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(layer_groups, "LEAST_BYTES", 1 << 14)
    (tmp_path / "net.prototxt").write_text(NET)
    command = ["summary", str(tmp_path / "net.prototxt"), "-memory_of", "gpu", "-memory"]
    assert cli.main([*command, "1KB"]) == 1
    least = re.search(r"this net trains in ([\d,]+) at least", capfd.readouterr().err)[1].replace(",", "")
    assert cli.main([*command, least]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^ip history +\d+,\d+ +(keep|move) +ip$", out, re.MULTILINE)
    assert re.search(r"^ip parameters +\d+,\d+ +(keep|move) +ip +ip$", out, re.MULTILINE)
    assert re.search(r"^p +131,072 +(keep|move|recompute) +d +d$", out, re.MULTILINE)
    assert not re.search(r"^c +524,288", out, re.MULTILINE)  # the ReLU keeps its signs, and nobody else reads it
    assert "out and back an iteration at 49.9 GB/s" in out  # of an H200, where no card is
    assert cli.main([*command, str(int(least) - 1)]) == 1


def test_the_least_is_the_same_for_all_limits():
    """Where a limit leaves room, backward of convolutions is not divided; nearer to the least it is."""
    first, second, third = (build_net(graph.prepare(text_format.Parse(NET, caffe_pb2.NetParameter()), 0),
                                      Context(0, cpu, rng=Stream(1))) for _ in range(3))
    found = forecast(first, "99%", "auto")
    near = forecast(second, str(found.least), "auto")
    assert near.least == found.least
    assert (found.steps.divided, near.steps.divided) == (set(), {4})
    with pytest.raises(UserError, match=f"trains in {found.least:,} at least"):
        forecast(third, str(found.least - 1), "auto")


def test_the_least_of_a_gpu_is_the_same_for_all_limits():
    """Where all stays, ReLUs keep no signs."""
    averaged = NET.replace("kernel_size: 2 stride: 2", "pool: AVE kernel_size: 2 stride: 2")
    first, second = (build_net(graph.prepare(text_format.Parse(averaged, caffe_pb2.NetParameter()), 0),
                               Context(0, cpu, rng=Stream(1))) for _ in range(2))
    found = forecast_on_gpu(first, "100%", "auto")
    near = forecast_on_gpu(second, str(found.least), "auto")
    assert near.least == found.least
    assert [any(part.name == "c" and part.forward and part.backward for part in each.iteration.tensors)
            for each in (found, near)] == [True, False]


def test_summary_refuses_less_than_the_least(tmp_path, capfd):
    (tmp_path / "net.prototxt").write_text(NET)
    assert cli.main(["summary", str(tmp_path / "net.prototxt"), "-memory", "1KB"]) != 0
    assert re.search(r"-memory 1KB: 1,000 bytes are too few; this net trains in [\d,]+ at least",
                     capfd.readouterr().err)
    assert issubclass(UserError, ValueError)
