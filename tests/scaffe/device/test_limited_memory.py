"""Training within limited memory of a device: the bits of training without a limit, and what the device was asked."""

import contextlib
import gc
import json
import os
import re
from argparse import Namespace
from pathlib import Path

import lmdb
import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.cli.commands import extract_features as extract_command
from scaffe.cli.commands import test as test_command
from scaffe.cli.commands import time as time_command
from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu, cuda, device, extents
from scaffe.layers.kernels.cuda import arena, to_host
from scaffe.layers.kernels.cuda import cublas as cublas_module
from scaffe.layers.kernels.cuda.arena import arena as scratch
from scaffe.layers.kernels.cuda.cublas import cublas, precision
from scaffe.memory.backing import speeds as link_speed
from scaffe.memory.backing.store import BACK, OUT, WAITS
from scaffe.memory.plan import layout, search
from scaffe.memory.plan.placements import PLACEMENTS
from scaffe.memory.plan.plan import Choice, Do
from scaffe.memory.plan.schedule import schedule
from scaffe.memory.problem import layer_groups, tensors
from scaffe.memory.problem.costs import made_in_passes
from scaffe.memory.problem.device_bytes import bytes_of_test_net
from scaffe.memory.problem.tensors import activation_tensors
from scaffe.memory.run import testing_nets as tested_module
from scaffe.memory.run.limited_passes import limit_forward
from scaffe.memory.run.report import forecast_on_gpu
from scaffe.nets import graph
from scaffe.nets.blob_memory import aligned
from scaffe.nets.build import build_net
from scaffe.nets.devices import Compute, load_kernels
from scaffe.nets.fusion import fuse_layers
from scaffe.nets.setup import Selection, make_context, make_net
from scaffe.proto import caffe_pb2
from scaffe.training import limited_memory
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import restore_checkpoint, save_checkpoint, whole_parameters
from scaffe.training.limited_memory import LimitedMemory
from scaffe.training.observers import test as test_observer
from scaffe.training.solver import Observer
from tests import pretend
from tests.collectives.test_mpi import job
from tests.pretend import memory, pool
from tests.scaffe.training.limited_memory_net import NET, from_database, moves, uneven
from tests.scaffe.training.limited_memory_worker import Seen, digest

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
pytestmark = pytest.mark.skipif(bool(device.missing()), reason=device.missing()) if REAL else pretend.needs_compiler
late = contextlib.nullcontext if REAL else pretend.deferring


@pytest.fixture(autouse=True)
def on_device(monkeypatch, tmp_path):
    """The pretend CuPy is there, or the real one; every array counts."""
    monkeypatch.setattr(tensors, "LEAST_BYTES", 1)
    monkeypatch.setattr(tensors, "rounded", aligned)
    monkeypatch.setattr(layer_groups, "LEAST_BYTES", 5000)
    monkeypatch.setattr(layer_groups, "CHUNK_BYTES", 60_000)
    monkeypatch.setattr(extents, "BLOCK_BYTES", 60_000)
    monkeypatch.setattr(search, "MOST_DRAWN", 60)  # any plan gives the same bits: a short search will do
    monkeypatch.setattr(search, "MOST_THRESHOLD_DRAWS", 60)
    monkeypatch.setattr(layout, "MOST_TRIALS", 40)
    monkeypatch.setattr(limited_memory, "MEASURED_AFTER_ON_DEVICE", 2)  # so that four iterations follow both plans
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(precision, "tf32", precision.tf32)  # which commands set
    if not REAL:
        pretend.install(monkeypatch)
        as_in_a_new_process()
        monkeypatch.setattr(cublas_module, "WORKSPACE_BYTES", 1 << 16)  # of the other arrays' order


def as_in_a_new_process():
    scratch.forget()
    cublas.cache_clear()
    arena._pool.cache_clear()
    gc.collect()


def solver_of(tmp_path, text="", net=NET, **options):
    param = caffe_pb2.SolverParameter()
    text_format.Parse('base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 4 random_seed: 5', param)
    text_format.Merge(f'snapshot_prefix: "{tmp_path}/x" {text}', param)
    text_format.Parse(net, param.net_param)
    given = {"strategy": "auto", "reduce": "auto", "allow_nan": False, "threads": 1, "readers": 1, "stage": "",
             "level": 0, "scal": "strong", "spill": ".", "placement": "auto", "gpu": "0", "tf32": "off", **options}
    return build_solver(Communicator.single(), param, Namespace(**given))


def limited(solver):
    return next((each.tier for each in solver.observers if isinstance(each, LimitedMemory)), None)


def trained(solver):
    """Tells weights and histories apart, when training has ended."""
    with late():
        return digest(solver)


def limits(tmp_path, text="", net=NET, **options):
    """From the least to nearly all that the net takes."""
    tier = limited(solver_of(tmp_path, text, net, memory="99%", **options))
    return [str(tier.least + (tier.limit.n_bytes - tier.least) * share // 100) for share in (0, 15, 50, 100)]


@pytest.mark.parametrize("placement", ["auto", "move"])
def test_the_bits_are_those_without_a_limit(tmp_path, placement):
    """Copies come as late as CUDA's rules allow: one that nobody waits for leaves other bits."""
    expected = trained(solver_of(tmp_path))
    seen = []
    for limit in limits(tmp_path):
        solver = solver_of(tmp_path, memory=limit, placement=placement)
        assert trained(solver) == expected
        seen += [choice for choice in limited(solver).plan.choices if choice is not Choice.KEEP]
    assert seen if placement == "auto" else set(seen) == {Choice.MOVE}


def test_a_batch_leaves_until_backward_reads_it_again(tmp_path):
    net = from_database(tmp_path)
    solvers = [solver_of(tmp_path, net=net, memory=limit, placement="move") for limit in limits(tmp_path, net=net)]
    expected = trained(solver_of(tmp_path, net=net))
    assert [trained(solver) for solver in solvers] == [expected] * len(solvers)
    assert any(moves("x", limited(solver)) for solver in solvers)


def test_what_is_computed_again_has_the_same_bits(tmp_path):
    """With dropout's masks, and batch norm's statistics counted once."""
    expected, least = trained(solver_of(tmp_path)), limits(tmp_path)[0]
    with pytest.raises(UserError, match="-placement recompute: activations need") as raised:
        solver_of(tmp_path, memory=least, placement="recompute")
    needed, left = (int(n.replace(",", "")) for n in re.search(r"need ([\d,]+) .*, ([\d,]+) are", str(raised.value))
                    .groups())
    solver = solver_of(tmp_path, memory=str(int(least) - left + int(1.01 * needed)), placement="recompute")
    names = {part.name for part, choice in zip(limited(solver).iteration.tensors, limited(solver).plan.choices,
                                               strict=True) if choice is Choice.RECOMPUTE}
    assert trained(solver) == expected
    assert "c2" in names
    assert limited(solver).executor.recomputed_seconds > 0
    assert not limited(solver).mover.offloaded


POOLED = """layer { name: "in" type: "Input" top: "x" top: "label" input_param {
  shape { dim: 4 dim: 3 dim: 16 dim: 16 } shape { dim: 4 } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "n" type: "LRN" bottom: "p" top: "n" lrn_param { local_size: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "n" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""


def test_summary_plans_for_a_gpu_with_the_arrays_that_it_has():
    """Without the pooling's output, which here backward does not read."""
    on_host, net = (build_net(graph.prepare(text_format.Parse(POOLED, caffe_pb2.NetParameter()), 0),
                              Context(0, kernels, np.dtype(np.float32), Stream(1))) for kernels in (cpu, cuda))
    fuse_layers(net, backward=True)
    expected, found = ({(part.name, part.n_bytes, part.forward, part.backward) for part in parts_there}
                       for parts_there in ([each.tensor for each in activation_tensors(net)],
                                           forecast_on_gpu(on_host, "100%", "auto").iteration.tensors))
    assert found == expected
    of_data = {name: backward for name, _, forward, backward in found if forward}
    assert of_data["p"] == (9,) and of_data["n"] == (8,)  # LRN's backward is step 9, the inner product's 8


def everything_moves(iteration, n_bytes, bandwidth):
    return schedule(iteration, [Choice.MOVE] * len(iteration.tensors), n_bytes, bandwidth)


@pytest.mark.parametrize("text", ["iter_size: 2 clip_gradients: 0.5", pytest.param(
    'type: "Adam" momentum2: 0.99', marks=pytest.mark.thorough)])
def test_histories_pass_through_memory(tmp_path, text, monkeypatch):
    expected = trained(solver_of(tmp_path, text))
    monkeypatch.setitem(PLACEMENTS, "move", everything_moves)  # else some may stay
    solver = solver_of(tmp_path, text, memory=limits(tmp_path, text)[0], placement="move")
    found = limited(solver)
    left = [part.name for part, choice in zip(found.iteration.tensors, found.plan.choices, strict=True)
            if part.is_persistent and choice is Choice.MOVE]
    assert trained(solver) == expected
    kinds = ("history", "parameters") if "Adam" in text else ("history",)  # all gradients are needed for the others
    assert set(left) == {f"{layer} {kind}" for layer in ("ip", "mid", "out") for kind in kinds}
    assert len(left) > (9 if "Adam" in text else 3)  # histories in pieces
    assert set(left) == moved(solver)  # with measured times, too


def moved(solver):
    """Names of the arrays that last and move."""
    found = limited(solver)
    return {part.name for part, choice in zip(found.iteration.tensors, found.plan.choices, strict=True)
            if part.is_persistent and choice is Choice.MOVE}


def test_parameters_of_convolutions_pass_through_memory_too(tmp_path, monkeypatch):
    expected = trained(solver_of(tmp_path))
    monkeypatch.setattr(layer_groups, "LEAST_BYTES", 2000)
    monkeypatch.setitem(PLACEMENTS, "move", everything_moves)  # else such short ones may stay
    solver = solver_of(tmp_path, memory=limits(tmp_path)[0], placement="move")
    left = moved(solver)
    assert trained(solver) == expected
    assert {"c2 parameters", "c3 parameters", "ip parameters", "mid parameters", "ip history", "mid history"} <= left
    assert {"ip parameters", "mid parameters"} <= moved(solver)  # with measured times


SERVED = {"strategy": "ssp", "slack": 0.0, "servers": 0, "bucket": "0"}


def pulled(solver):
    """The parameters on the server after some iterations."""
    solver.strategy.begin()
    with late():
        solver.step(4)
        solver.strategy.synchronize_parameters()
    found = whole_parameters(solver).tobytes()
    solver.strategy.finish()
    solver.close()
    return found


@pytest.mark.parametrize(("slack", "is_wide"), [(0.0, False), (0.0, True), (3.0, True)])
def test_parameters_that_are_pulled_leave_too(tmp_path, slack, is_wide):
    """From forward to backward on the host; between iterations nowhere but on the server. A pull writes them once what
    lay there before, other layers' parameters that leave, has gone."""
    served = {**SERVED, "slack": slack}
    net = wide().replace('"constant" value: 0.01', '"xavier"') if is_wide else NET
    expected, left = pulled(solver_of(tmp_path, net=net, **served)), set()
    for limit in limits(tmp_path, net=net, **served):
        solver = solver_of(tmp_path, net=net, memory=limit, placement="move", **served)
        found = limited(solver)
        left |= {part.name for part, choice in zip(found.iteration.tensors, found.plan.choices, strict=True)
                 if choice is Choice.MOVE and part.forward and part.name.endswith(" parameters")}
        assert not any(part.is_persistent for part in found.iteration.tensors)
        assert pulled(solver) == expected
    assert {f"{layer} parameters" for layer in (("y0", "y1", "y2") if is_wide else ("ip",))} <= left


DOWNPOUR = {**SERVED, "strategy": "downpour", "n_sync": 0, "n_fetch": 1, "n_push": 1, "warm_start": 0}
SERVERS = pytest.mark.parametrize("served", [{}, DOWNPOUR], ids=["auto", "downpour"])


class Halfway(Observer):
    """All meet, when gradients may have accrued."""

    def before_iteration(self, solver):
        if solver.iteration == 3:
            solver.strategy.synchronize_parameters()


def replicated(solver):
    """As ``trained``, of Downpour's."""
    solver.observers.append(Halfway())
    return trained(solver)


@pytest.mark.parametrize(("text", "given", "is_wide"), [
    ("", {"n_fetch": 2, "n_push": 5}, False),
    pytest.param("", {"n_sync": 2}, True, marks=pytest.mark.thorough),
    pytest.param("", {"warm_start": 2}, False, marks=pytest.mark.thorough),
    pytest.param("clip_gradients: 0.5", {"n_push": 2}, False, marks=pytest.mark.thorough)])
def test_what_a_downpour_replica_goes_on_from_and_what_accrues_leave(tmp_path, text, given, is_wide, monkeypatch):
    """What is fetched is taken over once its layer's parameters have come, which are copied out behind forward, too.
    Where gradients are clipped together, what accrues alone."""
    monkeypatch.setattr(layer_groups, "CHUNK_BYTES", 1 << 25)  # so that all of them leave
    options = {**DOWNPOUR, **given, "net": wide().replace('"constant" value: 0.01', '"xavier"') if is_wide else NET}
    text += " max_iter: 6"
    expected, left = replicated(solver_of(tmp_path, text, **options)), set()
    for limit in limits(tmp_path, text, **options)[:3:2]:
        solver = solver_of(tmp_path, text, memory=limit, placement="move", **options)
        left |= moved(solver)
        assert replicated(solver) == expected
    layers = ("y0", "y1", "y2", "y3", "y4", "y5") if is_wide else ("ip", "mid", "out")
    kinds = ("history",) if "clip" in text else ("history", "parameters")
    assert left == {f"{layer} {kind}" for layer in layers for kind in kinds}


PROBE = """layer { name: "probe" type: "InnerProduct" bottom: "ip" top: "probe" include { phase: TEST }
  inner_product_param { num_output: 3000 weight_filler { type: "xavier" } } }
layer { name: "elu" type: "ELU" bottom: "probe" top: "elu" include { phase: TEST } }
layer { name: "again" type: "InnerProduct" bottom: "ip" top: "again" include { phase: TEST } param { name: "w" }
  inner_product_param { num_output: 4000 bias_term: false } }"""
PROBED = NET.replace('bottom: "ip" top: "mid"', 'bottom: "ip" top: "mid" param { name: "w" }') + PROBE
TESTS = "test_iter: 2 test_iter: 1 test_interval: 2 test_initialization: true"  # two nets of the same layers


@contextlib.contextmanager
def peak(found):
    """Puts the most bytes that the block has in use on the device into ``found``."""
    as_in_a_new_process()
    before = memory.counters.peak = memory.counters.used
    yield
    found.append(memory.counters.peak - before)


def with_tests(solver):
    """What training leaves, and what its tests find."""
    seen = Seen()
    solver.observers[:0] = [test_observer.Test(), seen]
    return trained(solver), seen.values


@pytest.mark.parametrize(("precision", "served"), [
    ("fp32", {}), *(pytest.param(*each, marks=pytest.mark.thorough) for each in (("fp32", DOWNPOUR), ("bf16", {})))],
    ids=["fp32", "fp32-downpour", "bf16"])
def test_test_nets_read_parameters_that_move_layer_by_layer(tmp_path, precision, served):
    """Before passes are recorded and after, in turns with another test net; some parameters stay for a whole test."""
    options, peaks = {"net": uneven(), "precision": precision, **served}, []
    expected, limit = with_tests(solver_of(tmp_path, TESTS, **options)), limits(tmp_path, TESTS, **options)[not served]
    with peak(peaks):
        solver = solver_of(tmp_path, TESTS, **options, memory=limit)
        assert with_tests(solver) == expected
    assert [(phase, len(values)) for phase, values in expected[1]] == [("test", 2104), ("test_1", 2104)] * 3
    n_arrays = 4 if served else 2  # as long as the parameters: theirs, gradients, what is pulled and pushed
    assert REAL or peaks[0] <= int(limit) < n_arrays * solver.net.params.n_elems * 4
    for net, n_passes in zip(solver.test_nets, (2, 1), strict=True):
        plan, lengths = net.tiers[0].plan, [part.n_bytes for part in net.tiers[0].tensors]
        assert {*plan.choices} == {Choice.KEEP, Choice.MOVE}
        stay = sum(n for n, choice in zip(lengths, plan.choices, strict=True) if choice is Choice.KEEP)
        moved = sum(lengths[number] for number in plan.tensors_of(Do.FETCH))
        assert net.tiers[0].mover.fetched == 3 * (stay + n_passes * moved)
        assert not net.tiers[0].mover.offloaded
        shared = next(part for part in net.tiers[0].tensors if part.name == "y701 parameters")
        assert [net.nodes[step].name for step in shared.forward] == ["y701", "again"]


def test_what_test_nets_read_is_fetched_anew_once_it_was_written_and_never_copied_back(tmp_path, monkeypatch):
    """Parameters that stay for a whole test, written between tests without training."""
    found = []
    for given in ({}, {"memory": "99%"}):
        solver = solver_of(tmp_path, "test_iter: 1 test_interval: 2", uneven(), **given)
        test, first = solver.test_nets[0], solver.net.node("y600").layer.blobs[0]
        with late():
            found.append([float(solver.test_forward(test))])
            solver.net.params.fetch_all()
            first.data_flat[...] *= 2
            test.note_written()
            found[-1].append(float(solver.test_forward(test)))
            solver.step(1)
            found[-1].append(float(solver.test_forward(test)))
        for tier in test.tiers:
            assert {*tier.plan.choices} == {Choice.KEEP}
            with monkeypatch.context() as patch:
                patch.setattr(device, "copy_to_pinned", lambda *given: pytest.fail("copied"))
                tier.offload()
        solver.close()
    assert found[0] == found[1]


@pytest.mark.skipif(REAL, reason="the pretend CuPy counts")
def test_a_limit_in_which_a_layer_of_a_test_net_does_not_fit_is_refused(tmp_path, monkeypatch):
    limit = limits(tmp_path, TESTS, uneven())[0]
    monkeypatch.setattr(tested_module.ArenaSharingNet, "least_bytes", lambda self: int(limit))
    with pytest.raises(UserError, match=f"-memory {limit}: .* are too few for the solver's test net ''.*, are [0-9,]+"):
        solver_of(tmp_path, TESTS, uneven(), memory=limit)


@pytest.mark.parametrize(("precision", "served"), [
    pytest.param("bf16", {}, marks=pytest.mark.thorough), ("fp16", {}),
    pytest.param("bf16", DOWNPOUR, marks=pytest.mark.thorough)], ids=["bf16", "fp16", "bf16-downpour"])
def test_half_types_keep_their_bits_too(tmp_path, precision, served):
    options = {"precision": precision, **served}
    expected = trained(solver_of(tmp_path, **options))
    limit = limits(tmp_path, **options)[1]
    assert trained(solver_of(tmp_path, **options, memory=limit)) == expected


def test_a_resumed_run_goes_on_with_the_same_bits(tmp_path):
    limit, results = limits(tmp_path)[0], []
    for given in ({}, {"memory": limit}):
        solver = solver_of(tmp_path, "max_iter: 2", **given)
        solver.solve()
        save_checkpoint(solver)
        solver.close()
        solver = solver_of(tmp_path, **given)
        restore_checkpoint(solver, tmp_path / "x_iter_2.solverstate")
        results.append(trained(solver))
    assert results[0] == results[1]


@pytest.mark.mpi_job
@pytest.mark.parametrize("strategies", [
    ("ssp", "sc-obr", "sc-rs"), pytest.param(("downpour", "sc-obr", "sc-b", "sc-ob"), marks=pytest.mark.thorough)])
def test_two_ranks_train_to_the_same_bits_under_every_strategy(tmp_path, strategies):
    worker = Path(__file__).with_name("limited_memory_worker.py")
    result = job(2, [str(worker), str(tmp_path), *strategies], SCAFFE_CUDA_IPC="0")
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    assert json.loads((tmp_path / "results.json").read_text()) == [[True, True]] * (len(strategies) + 2)


@pytest.mark.mpi_job
@pytest.mark.thorough
@pytest.mark.parametrize("n_ranks", [2, 3])
def test_replicas_train_to_the_same_bits(tmp_path, n_ranks):
    """With a warm start, with a server alone, with what accrues alone on the host, resumed, and with test nets."""
    worker = Path(__file__).with_name("limited_memory_worker.py")
    result = job(n_ranks, [str(worker), str(tmp_path), "replicas"], SCAFFE_CUDA_IPC="0")
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    assert json.loads((tmp_path / "results.json").read_text()) == [[True] * n_ranks] * 6


@SERVERS
def test_passes_are_recorded_between_the_points_where_arrays_move(tmp_path, served):
    solver = solver_of(tmp_path, memory=limits(tmp_path, **served)[0], placement="move", **served)
    tier, passes = limited(solver), solver.strategy.passes
    solver.strategy.begin()
    with late():
        solver.step(3)
    ways = {way for way, _ in passes._recordings}
    assert ways >= {"forward", "backward"}
    assert len(passes._recordings) > 4
    stretches = {"forward": [], "backward": []}
    recorded = {(way.split()[0], first) for way, first in passes._recordings}
    for run, way in ((passes._forward_runs, "forward"), (passes._backward_runs, "backward")):
        stretches[way] = [(first, last) for first, last, can in run if can]
        assert all((way, first) in recorded for first, _ in stretches[way])
    moving = (Do.OFFLOAD, Do.OFFLOADED, Do.FETCH, Do.FETCHED)
    for first, last in stretches["forward"]:
        heads = [i for i in range(first, last + 1) if not solver.net.nodes[i].fused_offset]
        inner = [tier.plan.before[i] for i in heads[1:]] + [tier.plan.after[i - 1] for i in heads[1:]]
        assert not any(action.do in moving for actions in inner for action in actions)
    for first, last in stretches["backward"]:
        steps = [solver.net.steps.backward(i)[0] for i in range(last, first - 1, -1)]
        assert len(steps) == 1 or not any(action.do is Do.FETCHED for s in steps[1:] for action in tier.plan.before[s])
    solver.strategy.finish()
    solver.close()


@SERVERS
def test_what_is_copied_is_what_the_plan_says(tmp_path, served):
    solver = solver_of(tmp_path, memory=limits(tmp_path, **served)[0], placement="move", **served)
    tier = limited(solver)
    solver.strategy.begin()
    with late():
        solver.step(3)
        before = tier.mover.offloaded, tier.mover.fetched
        solver.step(2)
    lengths = [part.n_bytes for part in tier.iteration.tensors]
    for moved, was, do in zip((tier.mover.offloaded, tier.mover.fetched), before, (Do.OFFLOAD, Do.FETCH), strict=True):
        assert moved - was == 2 * sum(lengths[number] for number in tier.plan.tensors_of(do)) > 0
    solver.strategy.finish()
    solver.close()


@pytest.mark.skipif(REAL, reason="the pretend CuPy counts")
@SERVERS
def test_nothing_waits_and_nothing_is_allocated_once_passes_are_recorded(tmp_path, monkeypatch, served):
    made, usual = [], solver_of(tmp_path, **served)
    solver = solver_of(tmp_path, memory=limits(tmp_path, **served)[0], **served)
    for each in (usual, solver):
        each.strategy.begin()
        each.step(4)
    block, pinned = pool.Block.__init__, memory.alloc_pinned_memory
    monkeypatch.setattr(pool.Block, "__init__", lambda self, n_bytes: made.append(n_bytes) or block(self, n_bytes))
    monkeypatch.setattr(device.load().cuda, "alloc_pinned_memory", lambda n: made.append(n) or pinned(n))
    saved, waits = limited(solver).mover.offloaded, []
    with late():
        for each in (usual, solver):
            pretend.settings.waits.clear()
            for iteration in range(4, 7):
                each.strategy.iterate(0.01, iteration)
                each.strategy.apply(0.01, iteration)
            waits.append(list(pretend.settings.waits))
    assert waits[0] == waits[1] == ["get"] * 3  # the data layer draws on the host
    assert limited(solver).mover.offloaded > saved
    assert not made
    for each in (usual, solver):
        each.strategy.finish()
        each.close()


@pytest.mark.skipif(REAL, reason="the pretend CuPy counts")
@pytest.mark.parametrize(("share", "served"), [
    (0, {}), (0, SERVED), (0, DOWNPOUR), pytest.param(2, {}, marks=pytest.mark.thorough)],
    ids=["0", "0-ssp", "0-downpour", "2"])
def test_the_pool_keeps_within_the_limit(tmp_path, share, served):
    limit = limits(tmp_path, **served)[share]
    as_in_a_new_process()
    before = memory.counters.peak = memory.counters.used
    solver = solver_of(tmp_path, memory=limit, **served)
    solver.strategy.begin()
    solver.step(4)
    peak = memory.counters.peak - before
    solver.strategy.finish()
    assert 0.8 * int(limit) < peak <= int(limit)  # a plan made again with measured times may need less
    solver.close()


def wide(phase=""):
    """A net whose parameters, of 1 MiB a layer, take far more than all else."""
    fill = 'weight_filler { type: "constant" value: 0.01 }'
    text = f"""layer {{ name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {{
      shape {{ dim: 2 dim: 512 }} shape {{ dim: 2 }}
      data_filler {{ type: "constant" value: 0.1 }} data_filler {{ type: "constant" value: 2 }} }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "y5" bottom: "label" top: "loss" {phase} }}"""
    layers = [f"""layer {{ name: "y{i}" type: "InnerProduct" bottom: "{f'y{i - 1}' if i else 'x'}" top: "y{i}"
      inner_product_param {{ num_output: 512 {fill} }} }}""" for i in range(6)]
    first, last = text.split("layer { name: \"loss\"")
    return "\n".join([first, *layers, f"layer {{ name: \"loss\"{last}"])


@pytest.mark.skipif(REAL, reason="the pretend CuPy counts")
@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.thorough)])
def test_a_net_is_built_and_trained_within_the_limit(tmp_path, precision):
    """Its parameters and gradients, which take more than the limit, are made on the host."""
    options = {"net": wide(), "precision": precision}
    expected, found = trained(solver_of(tmp_path, **options)), []
    limit = limits(tmp_path, **options)[0]
    with peak(found):
        solver = solver_of(tmp_path, **options, memory=limit)
        assert trained(solver) == expected
    assert found[0] <= int(limit) < 2 * solver.net.params.n_elems * 4


@pytest.mark.skipif(REAL, reason="the pretend CuPy counts")
def test_histories_alone_move_and_a_net_is_built_within_the_limit(tmp_path):
    found, limit = [], limits(tmp_path, "iter_size: 2", wide())[0]
    with peak(found):
        solver_of(tmp_path, "iter_size: 2", wide(), memory=limit).step(2)
    assert found[0] <= int(limit)


def said_least(run, capfd):
    """What a command says that a net needs at least."""
    said = ""
    try:
        run()
    except UserError as error:  # as from a command that runs on one rank
        said = str(error)
    return re.search(r"trains in ([\d,]+)", said or capfd.readouterr().err)[1].replace(",", "")


@pytest.mark.skipif(REAL, reason="the pretend CuPy counts")
@pytest.mark.parametrize("command", ["test", "extract_features", "time"])
def test_commands_build_their_nets_within_the_limit(tmp_path, command, capfd):
    path, weights = tmp_path / "net.prototxt", tmp_path / "x_iter_0.caffemodel"
    path.write_text(wide())
    solver = solver_of(tmp_path, net=wide())
    save_checkpoint(solver)
    solver.close()
    flags = ["-model", str(path), "-iterations", "2", "-threads", "1", "-gpu", "0"]
    run = {"test": lambda *limit: test_command.main([*flags, "-weights", str(weights), *limit]),
           "time": lambda *limit: time_command.main([*flags, *limit]),
           "extract_features": lambda *limit: extract_command.main([
               str(weights), str(path), "y4", str(tmp_path / "one"), "1", "lmdb", "GPU", "0", *limit])}[command]
    limit, found = said_least(lambda: run("-memory", "1"), capfd), []
    with peak(found):
        assert run("-memory", limit) == 0
    assert found[0] <= int(limit)


def test_layers_that_fill_their_parameters_themselves_have_the_hosts(tmp_path):
    """Those that draw place by place, and those that run on the host: made there, and trained on the device."""
    net = """layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {
      shape { dim: 2 dim: 3 dim: 4 dim: 4 } shape { dim: 2 }
      data_filler { type: "constant" value: 0.1 } data_filler { type: "constant" value: 1 } } }
    layer { name: "local" type: "LocalConvolution" bottom: "x" top: "local" local_convolution_param {
      num_output: 2 kernel_size: 3 weight_filler { type: "gaussian" std: 0.1 } } }
    layer { name: "centre" type: "CenterLoss" bottom: "local" bottom: "label" top: "centre"
      center_loss_param { num_output: 3 center_filler { type: "xavier" } } }"""
    found = []
    for gpu in ("0", ""):
        solver = solver_of(tmp_path, "", net, gpu=gpu)
        arrays = [to_host(blob.data).copy() for node in solver.net.nodes for blob in node.layer.blobs]
        assert all(array.any() for array in (arrays[0], arrays[-1]))
        solver.step(2)
        found.append([*arrays, *(to_host(blob.data) for node in solver.net.nodes for blob in node.layer.blobs)])
        solver.close()
    for on_device, on_host in zip(*found, strict=True):
        np.testing.assert_allclose(on_device, on_host, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(REAL, reason="the pretend CuPy counts")
def test_what_test_nets_take_is_counted(tmp_path):
    """Among it parameters that only they have, and what their layers keep and make in passes."""
    peaks, used = [], []
    for text in ("", "test_iter: 1 test_interval: 100"):
        with peak(peaks):
            before = memory.counters.used
            solver = solver_of(tmp_path, text, PROBED)
            solver.step(4)
            for _ in range(4 * len(solver.test_nets)):
                float(solver.test_forward(solver.test_nets[0]))
            used.append(memory.counters.used - before)
        test = next(iter(solver.test_nets), None)
        solver.close()
    lasting = bytes_of_test_net(test) - made_in_passes(test)
    assert lasting == pytest.approx(used[1] - used[0], rel=0.01)
    assert peaks[1] - peaks[0] <= bytes_of_test_net(test)
    assert [blob.shape for blob in test.own_blobs] == [(3000, 20), (3000,)]
    assert all(not isinstance(blob.data_flat, np.ndarray) for node in test.nodes for blob in node.layer.blobs)
    shared = [to_host(found.node(name).layer.blobs[0].data) for found, name in ((solver.net, "mid"), (test, "again"))]
    assert shared[0].tobytes() == shared[1].tobytes()  # trained since


@SERVERS
def test_a_net_that_does_not_fit_trains_without_being_asked(tmp_path, monkeypatch, capfd, served):
    expected = trained(solver_of(tmp_path, **served))
    assert "Memory:" not in capfd.readouterr().err
    found = solver_of(tmp_path, memory="99%", **served)
    monkeypatch.setattr(device, "free_bytes", lambda: 0)
    least, whole = limited(found).least, limited(found).limit.n_bytes
    free = least + (whole - least) // 4 - limited_memory.held_bytes()
    monkeypatch.setattr(device, "free_bytes", lambda: int(free / (1 - limited_memory.SPARE)))
    capfd.readouterr()
    solver = solver_of(tmp_path, **served)
    assert re.search(r"Memory: training takes [\d.]+ MB on the device, [\d.]+ MB are free: what does not fit moves to "
                     "the host", capfd.readouterr().err)
    assert trained(solver) == expected
    assert limited(solver).mover.offloaded or limited(solver).executor.recomputed_seconds, limited(solver).plan.choices
    assert not served or moved(solver)
    monkeypatch.setattr(device, "free_bytes", lambda: 0)
    with pytest.raises(UserError, match="are too few; this net trains in"):
        solver_of(tmp_path)


def test_a_timeline_gets_the_copies_as_a_lane(tmp_path):
    solver, spans = solver_of(tmp_path, memory=limits(tmp_path)[0], placement="move"), []
    solver.timers.record = lambda thread, label, start, end: spans.append((thread, label.split()[0], end - start))
    trained(solver)
    copies = [(label, seconds) for thread, label, seconds in spans if thread in (OUT, BACK)]
    assert {label for label, _ in copies} == {"save", "fetch"}
    assert all(seconds >= 0 for _, seconds in copies)
    waits = [(label, seconds) for thread, label, seconds in spans if thread == WAITS]
    assert {label for label, _ in waits} == {"wait"} and all(seconds >= 0 for _, seconds in waits)
    tier = limited(solver)
    assert len(copies) > 2 * len(tier.plan.tensors_of(Do.OFFLOAD))
    assert len(waits) > 2 * len(tier.plan.tensors_of(Do.OFFLOADED))


def test_the_speed_of_the_link_is_measured_once(tmp_path, monkeypatch):
    solver_of(tmp_path, memory="99%").close()
    kept = json.loads((tmp_path / "cache" / "links.json").read_text())
    assert len(kept) == 1
    assert all(len(speeds) == 2 and min(speeds) > 0 for speeds in kept.values())
    monkeypatch.setattr(link_speed, "_measured", lambda memory: pytest.fail("measured again"))
    solver_of(tmp_path, memory="99%").close()


def test_ranks_of_one_device_share_what_is_free(tmp_path, monkeypatch):
    solver = solver_of(tmp_path)
    monkeypatch.setattr(device, "free_bytes", lambda: 1000)
    has = limited_memory._free_bytes(solver, 1) - 950
    params = solver.net.params
    assert has == params.data.nbytes + params.diff.nbytes + limited_memory.held_bytes()
    assert limited_memory._free_bytes(solver, 2) == has + 475
    solver.close()


def test_what_does_not_apply_is_said(tmp_path, capfd):
    solver_of(tmp_path, memory="99%", spill=str(tmp_path)).close()
    assert "Memory: -spill does not apply on a GPU: the rest goes to the host's memory" in capfd.readouterr().err
    with pytest.raises(UserError, match="-memory does not go with debug_info"):
        solver_of(tmp_path, "debug_info: true", memory="99%")


def forward_net(compute):
    context = make_context(load_kernels(1, compute), Stream(3), Share(), 3, dtype=compute.dtype)
    return make_net(text_format.Parse(NET, caffe_pb2.NetParameter()), Selection(caffe_pb2.TEST), context, "net")


def least_forward(compute):
    with pytest.raises(UserError, match="are too few") as raised:
        limit_forward(forward_net(compute), "1", "auto", None, ["c3"])
    return re.search(r"trains in ([\d,]+)", str(raised.value))[1].replace(",", "")


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.thorough)])
def test_a_net_that_runs_forward_alone_reads_its_parameters_layer_by_layer(tmp_path, precision):
    compute, found = Compute(gpus="0", precision=precision), []
    for limit in ("", "99%", least_forward(compute)):
        net = forward_net(compute)
        tier = limit_forward(net, limit, "auto", None, ["c3"])
        found.append([])
        with late():
            for _ in range(3):
                net.forward()
                found[-1] += [to_host(net.blobs[name].data).tobytes() for name in ("loss", "c3")]
        net.close()
    assert found[0] == found[1] == found[2]
    assert {part.name for part in tier.iteration.tensors if part.is_persistent} == {
        "ip parameters", "mid parameters", "out parameters"}
    assert tier.mover.fetched and not tier.plan.tensors_of(Do.OFFLOAD)


@pytest.mark.thorough
def test_commands_run_within_a_limit(tmp_path, capfd):
    (tmp_path / "net.prototxt").write_text(NET.replace('"gaussian" std: 1', '"constant" value: 0.5'))
    flags = ["-model", str(tmp_path / "net.prototxt"), "-iterations", "2", "-threads", "1", "-gpu", "0"]
    assert time_command.main([*flags, "-memory", "98.5%"]) == 0
    assert re.search(r"Memory: .* written, .* read back", capfd.readouterr().err)
    solver = solver_of(tmp_path)
    save_checkpoint(solver)
    solver.close()
    weights, outputs = str(tmp_path / "x_iter_0.caffemodel"), []
    share = "99%" if REAL else "95%"  # what cuBLAS works in, 32 MiB, cannot move
    for given in ([], ["-memory", share]):
        as_in_a_new_process()
        assert test_command.main([*flags, "-weights", weights, *given]) == 0
        outputs.append(capfd.readouterr().err)
    assert "Memory:" not in outputs[0] and "Memory: keep" in outputs[1]
    assert re.findall("Batch.*", outputs[0]) == re.findall("Batch.*", outputs[1]) != []
    for name, given in (("one", []), ("two", ["-memory", share])):
        as_in_a_new_process()
        assert extract_command.main([weights, str(tmp_path / "net.prototxt"), "c3,ip", f"{tmp_path}/{name},{tmp_path}/"
                                     f"{name}_ip", "1", "lmdb", "GPU", "0", *given]) == 0
    for blob in ("", "_ip"):
        stored = []
        for name in ("one", "two"):
            with lmdb.open(f"{tmp_path}/{name}{blob}", readonly=True) as env, env.begin() as transaction:
                stored.append(list(transaction.cursor()))
        assert stored[0] == stored[1] != []
