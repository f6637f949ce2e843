"""The arena's plan against brute force, and nets that give the same bytes in an arena full of garbage."""

import gc
import itertools
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.collectives.communicator import Communicator
from scaffe.layers.base.axes import same_memory
from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.memory.problem.activations import (
    arena_bytes,
    data_parts,
    diff_parts,
    note_passed_diffs,
    pass_diffs,
    reuse_activations,
    share_passed_diffs,
)
from scaffe.memory.problem.device_bytes import training_bytes, unfolded_bytes
from scaffe.nets import graph
from scaffe.nets.blob_memory import ALIGN_BYTES, Lifetime, aligned, memory_owners, place
from scaffe.nets.build import build_net
from scaffe.nets.fusion import fuse_layers, join_backward
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from tests import pretend
from tests.pretend import memory

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from nets.prototxt import prototxt  # noqa: E402

NETS = ("lenet", "cifar10_quick", "caffenet", "googlenet")
AWKWARD = """layer { name: "in" type: "Input" top: "x" top: "label" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 }
  shape { dim: 2 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "seen" type: "Accuracy" bottom: "f" bottom: "label" top: "acc" include { stage: "never" } }
layer { name: "s" type: "Slice" bottom: "c" top: "s1" top: "s2" slice_param { slice_point: 1 } }
layer { name: "unused" type: "Silence" bottom: "s1" }
layer { name: "d" type: "Dropout" bottom: "s2" top: "d" }
layer { name: "e" type: "Eltwise" bottom: "s2" bottom: "d" top: "e" }
layer { name: "one" type: "Concat" bottom: "e" top: "one" }
layer { name: "f" type: "Flatten" bottom: "one" top: "f" }
layer { name: "rs" type: "Reshape" bottom: "f" top: "rs" reshape_param { shape { dim: 0 dim: -1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "rs" top: "ip" inner_product_param { num_output: 5
  weight_filler { type: "xavier" } } }
layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "l2" type: "EuclideanLoss" bottom: "d" bottom: "s2" top: "l2" loss_weight: 0.1 }"""


def lower_bound(lifetimes):
    """Bytes needed at once in the fullest step: no placement takes fewer."""
    return max((sum(aligned(x.n_bytes) for x in lifetimes if x.first <= step <= x.last)
                for step in {x.first for x in lifetimes}), default=0)


@pytest.mark.parametrize("seed", range(40))
def test_arrays_that_live_at_once_do_not_overlap(seed):
    rng = np.random.RandomState(seed)
    n = rng.randint(0, 25)
    firsts = rng.randint(0, 12, n)
    lifetimes = [Lifetime(int(b), int(f), int(f + d))
                 for b, f, d in zip(rng.choice([0, 1, 255, 256, 257, 5000], n), firsts, rng.randint(0, 8, n))]
    offsets, n_bytes = place(lifetimes)
    taken = {(i, byte) for i in range(n) for byte in range(offsets[i], offsets[i] + lifetimes[i].n_bytes)}
    for step in range(20):
        alive = [i for i in range(n) if lifetimes[i].first <= step <= lifetimes[i].last]
        bytes_alive = [byte for i, byte in taken if i in alive]
        assert len(bytes_alive) == len(set(bytes_alive))
    assert all(o % ALIGN_BYTES == 0 for o in offsets)
    assert lower_bound(lifetimes) <= n_bytes <= sum(-(-x.n_bytes // ALIGN_BYTES) * ALIGN_BYTES for x in lifetimes)


def build(text, phase=0):
    prepared = graph.prepare(text_format.Parse(text, caffe_pb2.NetParameter()), phase)
    net = build_net(prepared, Context(phase, cpu, rng=Stream(1)))
    rng = np.random.RandomState(0)
    for blob in (net.blobs[name] for name in net.input_names):
        blob.data[...] = rng.rand(*blob.shape) if len(blob.shape) > 1 else rng.randint(0, 4, blob.shape)
    return net


def run(net, memory=None):
    """Losses, gradients and outputs of three passes; an arena is filled with garbage before each."""
    results = []
    for _ in range(3):
        for view in memory or ():
            view[...] = np.nan
        net.clear_param_diffs()
        loss = net.forward()
        net.backward()
        net.params.write_all_cleared_diffs()
        results.append((loss, net.params.diff.copy(), [net.blobs[name].data.copy() for name in net.output_names]))
        net.context.draws.from_bytes(Stream(5).to_bytes())
    return results


def same(a, b):
    for (loss, diff, outputs), (loss2, diff2, outputs2) in itertools.zip_longest(a, b):
        assert loss == loss2
        np.testing.assert_array_equal(diff, diff2)
        for x, y in zip(outputs, outputs2, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("text", [
    prototxt("lenet", 3), prototxt("cifar10_quick", 2), AWKWARD,
    pytest.param(prototxt("googlenet", 1), marks=pytest.mark.thorough),
], ids=["lenet", "cifar10_quick", "awkward", "googlenet"])
def test_a_net_in_an_arena_computes_the_same_bytes(text):
    plain, packed = build(text), build(text)
    n_bytes = reuse_activations(packed, backward=True)
    views = [part.blob.data_flat for part in data_parts(packed, True)] + [p.blob.diff_flat for p in diff_parts(packed)]
    assert n_bytes >= max(view.nbytes for view in views)
    same(run(packed, views), run(plain))


def normed(name, bottom, in_place):
    """A convolution of 4 outputs, batch norm and scale."""
    norm, scale = (name, name) if in_place else (f"{name}n", f"{name}s")
    return scale, f"""
layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ num_output: 4
  kernel_size: 1 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "{name}_bn" type: "BatchNorm" bottom: "{name}" top: "{norm}" }}
layer {{ name: "{name}_scale" type: "Scale" bottom: "{norm}" top: "{scale}" scale_param {{ bias_term: true
  filler {{ type: "constant" value: 1.5 }} }} }}"""


def residual_net(in_place):
    """Two blocks as ResNet has them, the second with its bottom as shortcut, and a sum of three at the end."""
    (left, one), (right, two) = normed("b1", "x", in_place), normed("a1", "x", in_place)
    last, three = normed("a2", "e1", in_place)
    return f"""layer {{ name: "in" type: "Input" top: "x" top: "label" input_param {{
  shape {{ dim: 2 dim: 3 dim: 6 dim: 6 }} shape {{ dim: 2 }} }} }}
{one}{two}
layer {{ name: "e1" type: "Eltwise" bottom: "{left}" bottom: "{right}" top: "e1" }}
layer {{ name: "r1" type: "ReLU" bottom: "e1" top: "e1" }}
{three}
layer {{ name: "e2" type: "Eltwise" bottom: "e1" bottom: "{last}" top: "e2" }}
layer {{ name: "r2" type: "ReLU" bottom: "e2" top: "e2" }}
layer {{ name: "t" type: "TanH" bottom: "e2" top: "t" }}
layer {{ name: "e3" type: "Eltwise" bottom: "t" bottom: "e1" bottom: "e2" top: "e3" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "e3" top: "ip" inner_product_param {{ num_output: 5
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}"""


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("arena", [True, False])
def test_sums_pass_their_gradient_on_without_a_copy(in_place, arena):
    plain, net = build(residual_net(in_place)), build(residual_net(in_place))
    views = None
    if arena:
        fuse_layers(plain, backward=True)  # which rounds otherwise
        reuse_activations(net, backward=True)
        views = [part.blob.diff_flat for part in diff_parts(net)]
    else:
        pass_diffs(net)
        join_backward(net.nodes)
        assert any(getattr(node.layer, "includes_relu", False) for node in net.nodes)
    expected = run(plain)
    same(run(net, views), expected)
    sums = [node for node in net.nodes if node.param.type == "Eltwise"]
    copied = [blob for node in sums for blob in node.bottoms
              if blob.diff_flat.ctypes.data != node.tops[0].diff_flat.ctypes.data]
    # what works in place on a sum's bottom would overwrite what the other bottom's layers read
    assert len(copied) == (0 if arena or not in_place else 3)
    net.unfused = True
    plain.unfused = True
    same(run(net), run(plain))


def test_a_split_adds_up_in_the_memory_of_its_first_tops_gradient():
    """The second and the third top are bottoms of sums, and have these sums' gradients."""
    plain, net = build(residual_net(True)), build(residual_net(True))
    for each in (plain, net):
        fuse_layers(each, backward=True)
    note_passed_diffs(net, in_splits=True)
    share_passed_diffs(net)
    same(run(net), run(plain))
    owners = memory_owners(net, "shares_diff")
    for split in (node for node in net.nodes if node.param.type == "Split" and node.needs_backward):
        whole, first = split.bottoms[0], [top is split.tops[0] for top in split.tops]
        assert [same_memory(top.diff_flat, whole.diff_flat) for top in split.tops] == first
        assert [owners[id(top)] is owners[id(whole)] for top in split.tops] == first
    sums = [node for node in net.nodes if node.param.type == "Eltwise"]
    assert all(owners[id(blob)] is owners[id(node.tops[0])] for node in sums for blob in node.bottoms)


@pytest.mark.parametrize("name", NETS)
def test_memory_is_used_again(name):
    net = build(prototxt(name, 1))
    parts = [*data_parts(net, True), *diff_parts(net)]
    lifetimes = [part.lifetime for part in parts]
    assert arena_bytes(net, True) <= 1.1 * lower_bound(lifetimes)
    assert arena_bytes(net, True) < 0.8 * sum(x.n_bytes for x in lifetimes)
    assert arena_bytes(net, False) < arena_bytes(net, True)


DUMMY = """layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 32 dim: 3 dim: 16 dim: 16 } shape { dim: 32 } data_filler { type: "gaussian" }
  data_filler { type: "constant" } } }
layer { name: "ip" type: "InnerProduct" bottom: "last" top: "ip" inner_product_param { num_output: 10
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""


def fed(body):
    """The layers between data and loss, with both."""
    first, rest = DUMMY.split("\n", 3)[:3], DUMMY.split("\n", 3)[3]
    return "\n".join([*first, body, rest])


def conv(bottom, top, n=16):
    return (f'layer {{ name: "{top}" type: "Convolution" bottom: "{bottom}" top: "{top}" convolution_param {{ '
            f'num_output: {n} kernel_size: 3 pad: 1 bias_term: false weight_filler {{ type: "xavier" }} }} }}')


def layer(kind, bottom, top, options=""):
    return f'layer {{ name: "{kind}_{top}" type: "{kind}" bottom: "{bottom}" top: "{top}" {options} }}'


def residual():
    """Batch normalisation and scale in place keep copies."""
    def normalised(bottom, top):
        return [conv(bottom, top), layer("BatchNorm", top, top),
                layer("Scale", top, top, "scale_param { bias_term: true }"), layer("ReLU", top, top)]

    parts = [*normalised("data", "x0"), *normalised("x0", "a"), *normalised("a", "b"),
             'layer { name: "e" type: "Eltwise" bottom: "x0" bottom: "b" top: "e" }', layer("ReLU", "e", "e"),
             layer("Pooling", "e", "last", "pooling_param { pool: AVE global_pooling: true }")]
    return fed("\n".join(parts))


def plain():
    """Poolings, normalisation and dropout keep places, scales and draws."""
    parts = [conv("data", "c0", 32), layer("ReLU", "c0", "c0"),
             layer("Pooling", "c0", "p0", "pooling_param { kernel_size: 3 stride: 2 }"), layer("LRN", "p0", "n"),
             conv("n", "last", 32), layer("Dropout", "last", "last")]
    return fed("\n".join(parts))


def lenet():
    return prototxt("lenet", 64).replace('type: "Input"', 'type: "DummyData"').replace(
        "input_param {", 'dummy_data_param { data_filler { type: "gaussian" } data_filler { type: "constant" }')


@pretend.needs_compiler
@pytest.mark.parametrize("net", [lenet(), residual(), plain()], ids=["lenet", "residual", "plain"])
def test_training_takes_the_memory_that_summary_predicts(monkeypatch, net):
    """On the pretend device, without cuDNN: its pool's peak within a tenth of the prediction."""
    pretend.install(monkeypatch)
    from scaffe.layers.kernels.cuda.arena import arena
    from scaffe.layers.kernels.cuda.cublas import WORKSPACE_BYTES, cublas

    cublas.cache_clear()  # as in a process of its own
    arena.forget()
    param = text_format.Parse('base_lr: 0.01 lr_policy: "fixed" max_iter: 2 momentum: 0.9 random_seed: 1 '
                              'snapshot_prefix: "none" snapshot_after_train: false', caffe_pb2.SolverParameter())
    text_format.Parse(net, param.net_param)
    gc.collect()
    before, memory.counters.peak = memory.counters.used, memory.counters.used
    solver = build_solver(Communicator.world(), param, Namespace(
        strategy="auto", reduce="auto", scal="strong", threads=1, readers=1, level=0, stage="", gpu="0",
        allow_nan=False))
    solver.solve()
    forecast = training_bytes(solver.net, 1) + unfolded_bytes(solver.net) - WORKSPACE_BYTES
    assert memory.counters.peak - before - WORKSPACE_BYTES == pytest.approx(forecast, rel=0.1)
