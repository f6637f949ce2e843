"""LeNet trained on a device: its losses beside the CPU's, its snapshots, half precision. Pretend CuPy, or a card."""

import contextlib
import os
import re
from argparse import Namespace

import numpy as np
import pytest

from scaffe.cli import main as cli
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.request import Request
from scaffe.layers.kernels import device
from scaffe.nets import graph, profiler_ranges, summary
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import restore_checkpoint, save_checkpoint
from scaffe.training.strategies.bucketed import Pending
from scaffe.training.strategies.transfers import Bucket
from scaffe.training.timers import Timers
from tests import pretend
from tests.scaffe.runs import losses as losses_of
from tests.scaffe.runs import write_solver
from tests.scaffe.training.test_shared_in_testing import check_probed, pretrained, started  # noqa: F401 - a fixture

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
needs_device = pytest.mark.skipif(bool(device.missing()), reason=device.missing()) if REAL else pretend.needs_compiler
BATCH, SAVED_AT, END = "batch_size: 4", 14, 20


def build(folder, lenet, gpu="", precision="fp32"):
    """A solver on the CPU or on the device, and the list that its losses go to."""
    net = lenet.replace("batch_size: 64", BATCH)
    path = write_solver(folder, net, max_iter=END, snapshot_prefix=str(folder / "run"), test_iter=None,
                        test_interval=None)
    options = Namespace(strategy="auto", reduce="auto", wire="", bucket="auto", scal="strong", threads=1, readers=1,
                        level=0, stage="", gpu=gpu, precision=precision, tf32="off", allow_nan=False,
                        skip_bad_records=0)
    solver, losses = build_solver(Communicator.world(), graph.read_solver(path), options), []
    iterate = solver.strategy.iterate
    solver.strategy.iterate = lambda *given: losses.append(iterate(*given)) or losses[-1]
    return solver, losses


def weights(solver):
    """On the host."""
    return np.array(solver.net.context.kernels.to_host(solver.net.params.data))


late = contextlib.nullcontext if REAL else pretend.deferring  # work is done as late as CUDA's rules allow


@pytest.fixture
def on_device(monkeypatch, tmp_path):
    """The pretend CuPy is there, or the real one; the solver's folder is the current one."""
    monkeypatch.chdir(tmp_path)
    if not REAL:
        pretend.install(monkeypatch)


@needs_device
def test_lenet_trains_as_on_the_cpu_and_resumes(tmp_path, lenet, on_device):
    here, expected = build(tmp_path, lenet)
    here.step(END)
    there, losses = build(tmp_path, lenet, "0")
    np.testing.assert_array_equal(weights(there), weights(build(tmp_path, lenet)[0]))  # the same draws
    with late():
        there.step(SAVED_AT)
        save_checkpoint(there)
        there.step(END - SAVED_AT)
    np.testing.assert_allclose([float(loss) for loss in losses], expected, rtol=1e-3)
    np.testing.assert_allclose(weights(there), weights(here), rtol=1e-2, atol=1e-4)
    again, repeated = build(tmp_path, lenet, "0")
    restore_checkpoint(again, str(tmp_path / f"run_iter_{SAVED_AT}.solverstate"))
    again.step(END - SAVED_AT)
    assert [float(loss) for loss in repeated] == [float(loss) for loss in losses[SAVED_AT:]]
    np.testing.assert_array_equal(weights(again), weights(there))


@needs_device
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_follows_float32(tmp_path, lenet, on_device, precision):
    here, expected = build(tmp_path, lenet)
    there, losses = build(tmp_path, lenet, "0", precision)
    for solver in (here, there):
        for observer in solver.observers:
            observer.begin(solver)
        solver.step(6)
    assert there.net.blobs["conv1"].dtype == there.net.context.dtype != np.float32
    assert there.net.params.dtype == np.float32
    scale = there.net.nodes[-1].loss_scale
    assert float(scale) == {"bf16": 1.0, "fp16": 2.0**12}[precision]
    np.testing.assert_allclose([float(loss) for loss in losses], expected, rtol=0.05)


@needs_device
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_weights_that_the_update_copies_are_those_that_forward_would_convert(tmp_path, lenet, on_device, precision):
    copied, losses = build(tmp_path, lenet, "0", precision)
    converted, expected = build(tmp_path, lenet, "0", precision)
    converted.updater.writes_copies = False
    with late():
        copied.step(6)
        converted.step(6)
    assert not copied.net.params.lays_out
    assert converted.net.params.lays_out
    assert [float(loss) for loss in losses] == [float(loss) for loss in expected]
    np.testing.assert_array_equal(weights(copied), weights(converted))


def test_a_bucket_that_has_arrived_is_ordered_before_what_follows():
    held = []

    class Point:
        def hold(self, stream):
            held.append(stream)

    class Replica:
        timers = Timers()
        net = Namespace(nodes=[Namespace(name="a")])

    pending = Pending(Replica(), "reduce")
    bucket = Bucket(0, 0, slice(0, 4))
    pending[bucket.first_layer] = Request.completed("reduce", Point())
    pending.wait(bucket.first_layer)
    assert held == [None]


@pytest.mark.skipif(REAL, reason="the pretend CuPy counts what makes the host wait")
@pretend.needs_compiler
def test_nothing_in_an_iteration_makes_the_host_wait(tmp_path, lenet, on_device):
    solver, _ = build(tmp_path, lenet, "0")
    solver.step(3)
    with late():
        pretend.settings.waits.clear()
        for iteration in range(3, 6):
            solver.strategy.iterate(0.01, iteration)
            solver.strategy.apply(0.01, iteration)
        assert set(pretend.settings.waits) <= {"event"}  # that pinned memory is free again, two batches later
        solver.step(1)


@needs_device
def test_the_commands_on_a_device(tmp_path, lenet, on_device, capfd, monkeypatch):
    monkeypatch.setitem(summary.N_IMAGES, "device", 1)
    net = lenet.replace("batch_size: 64", BATCH).replace("batch_size: 100", BATCH)
    write_solver(tmp_path, net, max_iter=4, test_iter=2, test_interval=2, display=1, snapshot=2)
    assert cli.main(["train", "-solver", "solver.prototxt", "-gpu", "0", "-threads", "1"]) == 0
    train = capfd.readouterr().err
    assert len(losses_of(train)) == 4
    assert train.count("Test net output #0: accuracy") == 3
    model = ["-model", "net.prototxt", "-gpu", "all"]
    assert cli.main(["test", *model, "-weights", "run_iter_4.caffemodel", "-iterations", "2"]) == 0
    on_card = capfd.readouterr().err
    assert cli.main(["test", *model[:2], "-weights", "run_iter_4.caffemodel", "-iterations", "2"]) == 0
    assert accuracy(on_card) == accuracy(capfd.readouterr().err)
    assert cli.main(["time", *model, "-iterations", "1"]) == 0
    timed = capfd.readouterr().err
    assert "Average Forward-Backward" in timed
    assert re.search(r"conv1\tforward: [\d,]+ images/s, \S+ GB/s, \d+% of the roofline.\tbackward: ", timed)
    write_solver(tmp_path, net, max_iter=6, test_iter=None, test_interval=None, snapshot_format="HDF5", snapshot=6,
                 solver_mode="GPU")
    assert cli.main(["train", "-solver", "solver.prototxt", "-snapshot", "run_iter_4.solverstate"]) == 0
    assert cli.main(["train", "-solver", "solver.prototxt", "-snapshot", "run_iter_6.solverstate.h5"]) == 0
    assert "running on the CPU" not in capfd.readouterr().err


def accuracy(log):
    """What a test found, to four digits."""
    return re.findall(r"\] accuracy = (\S{1,6})", log)


@pytest.mark.skipif(REAL, reason="looks into the pretend module")
@needs_device
@pytest.mark.parametrize("way", ["asked", "attached", "neither"])
def test_a_profiler_sees_layers_in_phases(tmp_path, lenet, on_device, monkeypatch, way):
    """With -nvtx in every iteration; where one is attached, recordings from the third on, by their ends."""
    import cupy

    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/profilers/library.so" if way == "attached" else "")
    net = lenet.replace("batch_size: 64", BATCH).replace("batch_size: 100", BATCH)
    write_solver(tmp_path, net, max_iter=4, test_iter=1, test_interval=4, snapshot=None)
    assert cli.main(["train", "-solver", "solver.prototxt", "-gpu", "0", "-threads", "1",
                     *(["-nvtx"] if way == "asked" else [])]) == 0
    seen = cupy.cuda.nvtx._log
    assert cupy.cuda.nvtx._open == []
    n_layers = {"asked": 4, "attached": 3, "neither": 0}[way]  # attached: twice, and once to be recorded
    assert seen.count(("backward", "backward conv1")) == n_layers
    assert seen.count(("forward", "forward conv1")) == n_layers
    assert seen.count(("update",)) == (0 if way == "neither" else 4)
    assert seen.count(("test", "forward conv1")) == (0 if way == "neither" else 2)
    recorded = [names for names in seen if " to " in names[-1]]
    assert len(recorded) == (4 if way == "attached" else 0)
    assert all(names[-1].startswith(names[0]) for names in recorded)


def test_ranges_of_a_net_on_the_cpu_are_missed_in_one_line(tmp_path, lenet, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = lenet.replace("batch_size: 64", BATCH).replace("batch_size: 100", BATCH)
    write_solver(tmp_path, net, max_iter=1, test_iter=1, test_interval=1, snapshot=None)
    profiler_ranges._say_there_are_none.cache_clear()
    assert cli.main(["train", "-solver", "solver.prototxt", "-nvtx"]) == 0
    assert capsys.readouterr().err.count("-nvtx: the net computes on the CPU") == 1


@needs_device
def test_layers_of_the_test_net_alone_have_their_pretrained_weights(tmp_path, pretrained, on_device):  # noqa: F811
    solver = started(tmp_path, pretrained, "-gpu", "0", "-tf32", "off")
    check_probed(solver)
    solver.remake_tests()
    check_probed(solver)
    solver.close()
