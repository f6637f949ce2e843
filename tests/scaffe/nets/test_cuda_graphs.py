"""Recorded passes: where they are cut, and that they train as passes that run layer by layer do."""

from argparse import Namespace

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.collectives.communicator import Communicator
from scaffe.nets import cuda_graphs as recorded
from scaffe.nets.cuda_graphs import stretches
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.observers import test
from tests import pretend

NET = """layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 4 dim: 2 dim: 6 dim: 6 } shape { dim: 4 } data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "frozen" type: "Scale" bottom: "x" top: "f" param { lr_mult: 0 } scale_param {
  filler { type: "uniform" min: 0.5 max: 2 } } }
layer { name: "c" type: "Convolution" bottom: "f" top: "c" convolution_param { num_output: 4 kernel_size: 3
  weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "c" top: "c" }
layer { name: "sc" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "drop" type: "Dropout" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "host" type: "MVN" bottom: "p" top: "m" }
layer { name: "ip" type: "InnerProduct" bottom: "m" top: "ip" inner_product_param { num_output: 5
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""


def test_stretches_are_cut_at_seams_and_where_layers_differ():
    assert stretches([], {1}) == []
    assert stretches([False, True, True, True, False, True], {2}) == [
        (0, 0, False), (1, 1, True), (2, 3, True), (4, 4, False), (5, 5, True)]
    assert stretches([True] * 4, ()) == [(0, 3, True)]
    assert stretches([True] * 3, {0, 1, 2}) == [(0, 0, True), (1, 1, True), (2, 2, True)]


def train(monkeypatch, n_iterations, warm_up, iter_size=1, shapes=()):
    """Losses, parameters and recordings after some iterations."""
    cupy = pretend.install(monkeypatch)
    monkeypatch.setattr(recorded, "WARM_UP", warm_up)
    param = text_format.Parse(f'base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 random_seed: 3 iter_size: {iter_size} '
                              'snapshot_prefix: "none" max_iter: 9', caffe_pb2.SolverParameter())
    text_format.Parse(NET, param.net_param)
    solver = build_solver(Communicator.world(), param, Namespace(
        strategy="auto", reduce="auto", scal="strong", threads=1, readers=1, level=0, stage="", gpu="0",
        allow_nan=False))
    losses = []
    iterate = solver.strategy.iterate
    solver.strategy.iterate = lambda *given: losses.append(iterate(*given)) or losses[-1]
    with pretend.deferring():
        solver.step(n_iterations)
    passes = solver.strategy.passes
    return [float(loss) for loss in losses], cupy.asnumpy(solver.net.params.data), passes._recordings


@pretend.needs_compiler
@pytest.mark.parametrize("iter_size", [1, 2, 3])
def test_recorded_passes_train_alike(monkeypatch, iter_size):
    losses, weights, recordings = train(monkeypatch, 6, warm_up=2, iter_size=iter_size)
    plain_losses, plain_weights, none = train(monkeypatch, 6, warm_up=99, iter_size=iter_size)
    assert not none
    ways = ["forward", "backward"] + ["backward adding"] * (iter_size > 1)
    assert sorted(recordings) == sorted((way, first) for way in ways for first in (1, 9))
    assert all(hasattr(found.args[0], "result") for found in recordings.values())  # none fell back
    assert losses == plain_losses
    assert len(set(losses)) == 6
    np.testing.assert_array_equal(weights, plain_weights)


@pretend.needs_compiler
def test_what_cannot_be_recorded_runs_layer_by_layer_and_says_so(monkeypatch):
    from scaffe.layers.vision.pooling import Pooling

    said = []
    monkeypatch.setattr(recorded, "warning", said.append)
    forward = Pooling.forward
    monkeypatch.setattr(Pooling, "forward", lambda self, bottom, top: (
        forward(self, bottom, top), self.context.kernels.to_host(top[0].data_flat))[0])
    losses, weights, _ = train(monkeypatch, 5, warm_up=2)
    monkeypatch.setattr(Pooling, "forward", forward)
    plain_losses, plain_weights, _ = train(monkeypatch, 5, warm_up=99)
    assert len(said) == 1
    assert "forward from layer 'frozen' cannot be recorded (" in said[0]
    assert losses == plain_losses
    np.testing.assert_array_equal(weights, plain_weights)


def scores(monkeypatch, warm_up):
    """What two tests of 5 iterations log, with an update between, and the test net's recordings."""
    pretend.install(monkeypatch)
    monkeypatch.setattr(recorded, "WARM_UP", warm_up)
    said = []
    monkeypatch.setattr(test, "info", said.append)
    param = text_format.Parse('base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 random_seed: 3 snapshot_prefix: "none" '
                              'max_iter: 9 test_iter: 5 test_interval: 100', caffe_pb2.SolverParameter())
    text_format.Parse(NET, param.net_param)
    solver = build_solver(Communicator.world(), param, Namespace(
        strategy="auto", reduce="auto", scal="strong", threads=1, readers=1, level=0, stage="", gpu="0",
        allow_nan=False))
    with pretend.deferring():
        for _ in range(2):
            test.Test().test_all(solver)
            solver.step(1)
    (passes,) = solver.test_passes.values()
    return said, passes._recordings


@pretend.needs_compiler
def test_recorded_tests_give_the_same_scores(monkeypatch):
    said, recordings = scores(monkeypatch, 2)
    plain, none = scores(monkeypatch, 99)
    assert (sorted(recordings), none) == ([("forward", 1), ("forward", 9)], {})
    assert said == plain
    assert len(set(said)) == len(said) == 4  # the update changed the scores


class Listed:
    """A tier, and hooks, that write down when they are called."""

    def __init__(self, net):
        self.seen = []
        for way in ("before_forward", "after_forward"):
            getattr(net, way).append(lambda index, way=way: self.seen.append((way, index)))
        net.tiers.append(self)

    def before(self, step):
        self.seen.append(("tier", step))

    def after(self, step):
        self.seen.append(("tier after", step))

    def recompute(self, step):
        pass

    def close(self):
        pass


@pretend.needs_compiler
def test_hooks_find_what_the_tiers_bring(monkeypatch):
    """A parameter server's pull writes parameters where a memory plan has them, once what lay there has gone."""
    pretend.install(monkeypatch)
    param = text_format.Parse('base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "none" max_iter: 9',
                              caffe_pb2.SolverParameter())
    text_format.Parse(NET, param.net_param)
    solver = build_solver(Communicator.world(), param, Namespace(
        strategy="auto", reduce="auto", scal="strong", threads=1, readers=1, level=0, stage="", gpu="0",
        allow_nan=False))
    listed, n_layers = Listed(solver.net), len(solver.net.nodes)
    solver.step(recorded.WARM_UP)
    layer_by_layer = listed.seen[:len(listed.seen) // recorded.WARM_UP]
    listed.seen.clear()
    solver.step(1)
    assert {way for way, _ in solver.strategy.passes._recordings} == {"forward", "backward"}
    for seen in (layer_by_layer, listed.seen):
        for index in range(n_layers):
            order = [("tier", index), ("before_forward", index), ("after_forward", index), ("tier after", index)]
            assert [each for each in seen if each in order] == order
