"""A residual net with batch norm in place, and a max pooling behind a ReLU, trained on a device, by cuDNN too:
beside the CPU. Pretend or real."""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.collectives.communicator import Communicator
from scaffe.layers.kernels import cuda, device
from scaffe.layers.kernels.cuda import deferred
from scaffe.layers.kernels.cuda.cudnn import convolution as cudnn_convolution
from scaffe.layers.kernels.cuda.cudnn import graphs as cudnn_graphs
from scaffe.layers.kernels.cuda.cudnn import plans as cudnn_plans
from scaffe.layers.kernels.cuda.cudnn.summed_gradient import SummedGradient
from scaffe.layers.vision.pooling import Pooling
from scaffe.memory.problem import activations
from scaffe.proto import caffe_pb2
from scaffe.training import limited_memory
from scaffe.training.assembly import build_solver
from tests import pretend

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
pytestmark = pytest.mark.skipif(bool(device.missing()), reason=device.missing()) if REAL else pretend.needs_compiler
N_ITERATIONS = 6
BY_BITS = {"batchnorm+add+relu+cmp_gt", "conv_dgrad+add+binary_select"}  # graphs that write and read sign bits
late = contextlib.nullcontext if REAL else pretend.deferring
each_alone = deferred.deferring


def unit(name: str, bottom: str, relu: bool, kernel: int = 3, stride: int = 1) -> str:
    """Convolution, batch norm, scale and ReLU, as ResNet's prototxt has them."""
    relu_layer = f'layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}'
    return f'''layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{
        num_output: 16 kernel_size: {kernel} pad: {kernel // 2} stride: {stride} bias_term: false
        weight_filler {{ type: "msra" }} }} }}
      layer {{ name: "bn_{name}" type: "BatchNorm" bottom: "{name}" top: "{name}" }}
      layer {{ name: "scale_{name}" type: "Scale" bottom: "{name}" top: "{name}" scale_param {{ bias_term: true }} }}
      {relu_layer if relu else ""}'''


NET = ('''layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {
    shape { dim: 6 dim: 3 dim: 5 dim: 5 } shape { dim: 6 } data_filler { type: "gaussian" }
    data_filler { type: "constant" value: 1 } } }'''
       + unit("a", "data", True) + unit("b1", "a", False, 1) + unit("b2", "a", True) + unit("b3", "b2", False)
       + '''layer { name: "sum" type: "Eltwise" bottom: "b1" bottom: "b3" top: "sum" }
    layer { name: "sum_relu" type: "ReLU" bottom: "sum" top: "sum" }'''
       + unit("c", "sum", True) + unit("d", "c", False)
       + '''layer { name: "sum2" type: "Eltwise" bottom: "d" bottom: "sum" top: "sum2" }
    layer { name: "sum2_relu" type: "ReLU" bottom: "sum2" top: "sum2" }'''
       + unit("f1", "sum2", False, 1, 2) + unit("f2", "sum2", True, 1, 2) + unit("f3", "f2", False)
       + '''layer { name: "sum3" type: "Eltwise" bottom: "f1" bottom: "f3" top: "sum3" }
    layer { name: "sum3_relu" type: "ReLU" bottom: "sum3" top: "sum3" }
    layer { name: "e" type: "Convolution" bottom: "sum3" top: "e" convolution_param { num_output: 8 kernel_size: 2
      weight_filler { type: "msra" } } }
    layer { name: "e_relu" type: "ReLU" bottom: "e" top: "e" }
    layer { name: "p" type: "Pooling" bottom: "e" top: "p" pooling_param { kernel_size: 2 stride: 1 } }
    layer { name: "ip" type: "InnerProduct" bottom: "p" top: "ip" inner_product_param { num_output: 4
      weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }''')


AVERAGE = NET.replace("stride: 1 }", "stride: 1 pool: AVE }")


def train(gpu: str, precision: str = "fp32", net: str = NET, more: str = "") -> tuple[list[float], np.ndarray]:
    """Losses of some iterations, and all parameters behind them, statistics too."""
    param = text_format.Parse('base_lr: 0.001 lr_policy: "fixed" max_iter: 6 momentum: 0.9 random_seed: 1 '
                              'snapshot_prefix: "none" snapshot_after_train: false', caffe_pb2.SolverParameter())
    text_format.Merge(more, param)
    text_format.Parse(net, param.net_param)
    solver = build_solver(Communicator.world(), param, Namespace(
        strategy="auto", reduce="auto", wire="", bucket="auto", scal="strong", threads=1, readers=1, level=0, stage="",
        gpu=gpu, precision=precision, tf32="off", allow_nan=False, skip_bad_records=0))
    losses, iterate = [], solver.strategy.iterate
    solver.strategy.iterate = lambda *given: losses.append(iterate(*given)) or losses[-1]
    with late():
        solver.step(N_ITERATIONS)
    return [float(x) for x in losses], np.array(solver.net.context.kernels.to_host(solver.net.params.data))


@pytest.fixture(params=[False, True], ids=["ours", "cudnn"])
def with_cudnn(request, monkeypatch, tmp_path):
    """Without and with cuDNN."""
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path))
    for cached in (cudnn_graphs.frontend, cudnn_plans.build):
        cached.cache_clear()
    if not REAL:
        pretend.install(monkeypatch, with_cudnn=request.param)
    elif not request.param:
        monkeypatch.setattr(cudnn_graphs, "frontend", lambda: None)
    yield request.param
    for cached in (cudnn_graphs.frontend, cudnn_plans.build):
        getattr(cached, "cache_clear", lambda: None)()


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("bf16", 0.05)])
def test_a_residual_net_trains_as_on_the_cpu(with_cudnn: bool, precision: str, tolerance: float) -> None:
    expected, weights = train("")
    if with_cudnn and not REAL:
        from tests.pretend.cudnn import pygraph

        pygraph.log.clear()
    losses, got = train("0", precision)
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    np.testing.assert_allclose(got, weights, rtol=10 * tolerance, atol=10 * tolerance * np.abs(weights).max())
    if with_cudnn and not REAL:
        one_pass = {"batchnorm", "batchnorm+relu", "batchnorm+add+relu", "batchnorm_backward",
                    "batchnorm_inference+relu_backward+batchnorm_backward"}
        one_pass |= {"conv_dgrad+add", *BY_BITS} if precision == "bf16" else set()
        assert one_pass <= set(pygraph.log)
        assert all(pygraph.log.count(name) >= 3 for name in one_pass)  # until they are recorded


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_average_pooling_does_relus_backward(monkeypatch, with_cudnn: bool, precision: str) -> None:
    """With the bits of the ReLU's own; one convolution's is left, and the splits' are in other kernels."""
    ran, relu_backward = [], cuda.relu_backward
    monkeypatch.setattr(cuda, "relu_backward", lambda *given: ran.append(1) or relu_backward(*given))
    joined, n_joined = train("0", precision, AVERAGE), len(ran)
    monkeypatch.setattr(Pooling, "mask_average", lambda layer: False)
    apart = train("0", precision, AVERAGE)
    assert n_joined < len(ran) - n_joined
    assert joined[0] == apart[0]
    np.testing.assert_array_equal(joined[1].view(np.uint32), apart[1].view(np.uint32))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_work_of_many_layers_at_once_has_the_bits_of_each_by_itself(monkeypatch, with_cudnn: bool,
                                                                    precision: str) -> None:
    """In recordings, too: six iterations, of which the last four are launched as a whole."""
    together = train("0", precision)
    n_together = []
    monkeypatch.setattr(deferred, "deferring", lambda wanted=True: (n_together.append(wanted), each_alone(False))[1])
    alone = train("0", precision)
    assert any(n_together)
    assert together[0] == alone[0]
    np.testing.assert_array_equal(together[1].view(np.uint32), alone[1].view(np.uint32))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gradients_added_by_a_convolution_are_a_splits(monkeypatch, with_cudnn: bool, precision: str) -> None:
    """The same bits in float32; in bfloat16, where the sum is rounded once instead of twice, as near as that."""
    monkeypatch.setattr(activations, "join_thinned", lambda nodes: None)
    joined = train("0", precision)
    called = []
    monkeypatch.setattr(activations, "join_sums", called.append)
    apart = train("0", precision)
    assert called
    if precision == "fp32" or not with_cudnn:
        np.testing.assert_array_equal(joined[1].view(np.uint32), apart[1].view(np.uint32))
    else:
        assert np.abs(joined[1] - apart[1]).max() > 0
        np.testing.assert_allclose(joined[0], apart[0], rtol=0.01)


@pytest.mark.skipif(REAL, reason="looks into the pretend module")
def test_sums_are_chosen_where_first_ranks_choices_go_to_other_nodes(monkeypatch, with_cudnn: bool) -> None:
    """Backward asks for no graph whose choice is not known from there."""
    with_first, chosen, inside = limited_memory.with_first_ranks_kernels, {True: set(), False: set()}, []

    def noted(ranks, kernels, step, needs=()):
        inside.append(True)
        try:
            return with_first(ranks, kernels, step, needs)
        finally:
            inside.clear()
    monkeypatch.setattr(limited_memory, "with_first_ranks_kernels", noted)
    monkeypatch.setattr(SummedGradient, "_is_better", lambda plan, built: chosen[bool(inside)].add(
        built.key) or True)
    train("0", "bf16")
    assert chosen[False] <= chosen[True]
    assert bool(chosen[True]) == with_cudnn


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 0.01)])
def test_thinned_gradients_are_the_whole_ones(monkeypatch, with_cudnn: bool, precision: str, tolerance: float) -> None:
    """Up to the order in which sums of batch norm's backward are added, and a rounding at the shortcut's split."""
    thinned = train("0", precision)
    called = []
    monkeypatch.setattr(activations, "join_thinned", called.append)
    whole = train("0", precision)
    assert called
    assert np.array_equal(thinned[1], whole[1]) != with_cudnn
    np.testing.assert_allclose(thinned[0], whole[0], rtol=tolerance)
    np.testing.assert_allclose(thinned[1], whole[1], rtol=0, atol=tolerance * np.abs(whole[1]).max())


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 0.01)])
def test_layers_that_run_by_themselves_train_the_same(with_cudnn: bool, precision: str, tolerance: float) -> None:
    """As all do whose values are logged."""
    fused, alone = train("0", precision), train("0", precision, more="debug_info: true display: 1")
    np.testing.assert_allclose(alone[0], fused[0], rtol=tolerance)
    np.testing.assert_allclose(alone[1], fused[1], rtol=0, atol=tolerance * np.abs(fused[1]).max())


@pytest.mark.skipif(REAL, reason="looks into the pretend module")
def test_sign_bits_give_what_signs_of_the_data_give(monkeypatch, with_cudnn: bool) -> None:
    """Losses and parameters to the bit, recordings included."""
    from tests.pretend.cudnn import pygraph

    pygraph.log.clear()
    by_bits, ran = train("0", "bf16"), {*pygraph.log}
    monkeypatch.setattr(cudnn_convolution.Convolution, "takes_sign_bits", lambda plan, n_addends: False)
    pygraph.log.clear()
    by_data = train("0", "bf16")
    assert (ran >= BY_BITS, BY_BITS & {*pygraph.log}) == (with_cudnn, set())
    assert by_bits[0] == by_data[0]
    np.testing.assert_array_equal(by_bits[1].view(np.uint32), by_data[1].view(np.uint32))
