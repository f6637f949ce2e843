"""L-BFGS trains linear regressions, on one rank and on three: against closed forms, and bit by bit where it says so."""

import atexit
import functools
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.errors import UserError
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.sandblaster.rank import Layout, Rank
from scaffe.training.strategies import look_up
from scaffe.training.strategies.sandblaster import Sandblaster
from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT
from tests.scaffe.training.sandblaster import worker
from tests.scaffe.training.sandblaster.worker import L1, L2, MULTS, N_ROWS, N_STEPS, NET, PORTION, RUNS, SOLVER, TESTS

WORKER = "tests.scaffe.training.sandblaster.worker"
N_RANKS = pytest.mark.parametrize("n_ranks", [1, pytest.param(3, marks=pytest.mark.mpi_job)])
N_PORTIONS = -(-N_ROWS // PORTION)


@functools.cache
def results(n_ranks):
    """What the runs ended with on that many ranks, by name."""
    place = tempfile.TemporaryDirectory()
    atexit.register(place.cleanup)
    folder = Path(place.name)
    worker.write_rows(folder)
    if n_ranks == 1:
        log.silence(True)
        try:
            return {name: worker.train(Communicator.single(), folder, name) for name, run in RUNS.items()
                    if "servers" not in run[0]}
        finally:
            log.silence(False)
    done = subprocess.run([*mpirun(n_ranks), sys.executable, "-m", WORKER, str(folder)], cwd=ROOT, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return pickle.loads((folder / f"results_{n_ranks}").read_bytes())


def whole():
    """The regression in float64, with a column of ones for the biases, and each row of parameters' decay."""
    x, y = (a.astype(np.float64) for a in worker.rows())
    return np.c_[x, np.ones(N_ROWS)], y, np.array([MULTS[0][1]] * 5 + [MULTS[1][1]])


def ridge(l2):
    """The minimum of sum of squares / 2N + l2 / 2 sum of decayed squares, (6, 2): normal equations."""
    x, y, mults = whole()
    return np.linalg.solve(x.T @ x / N_ROWS + l2 * np.diag(mults), x.T @ y / N_ROWS)


def lasso(l1):
    """The same with l1 times the sum of absolute values: proximal gradient steps."""
    x, y, mults = whole()
    w, rate = np.zeros((6, 2)), 1 / np.linalg.norm(x.T @ x / N_ROWS, 2)
    for _ in range(20_000):
        w = w - rate * x.T @ (x @ w - y) / N_ROWS
        w = np.sign(w) * np.maximum(np.abs(w) - rate * l1 * mults[:, None], 0)
    return w


def loss(w):
    x, y, _ = whole()
    return ((x @ w - y) ** 2).sum() / 2 / N_ROWS


def parameters(found):
    """The net's parameters as (6, 2): weights are (outputs, inputs), each blob begins on a cache line."""
    flat = found["weights"]
    return np.vstack([flat[:10].reshape(2, 5).T, flat[16:18]]).astype(np.float64)


def ran(n_ranks):
    return [name for name in results(n_ranks) if RUNS[name][0].get("servers", 0) < n_ranks]


@N_RANKS
def test_the_ranks_end_together(n_ranks):
    for name in ran(n_ranks):
        found = results(n_ranks)[name]
        n_workers, last = n_ranks - RUNS[name][0].get("servers", 0), {"12 steps": 12, "6 of 12": 6}
        assert found["same"], name
        assert found["steps"] == [last.get(name, 12 if name.startswith("then") else N_STEPS)] * n_workers
        assert found["weights"][32] == 1  # frozen


@N_RANKS
@pytest.mark.parametrize("name", ["plain", "steady", "servers", "steady servers", "net's batch", "uncached"])
def test_the_minimum_with_an_l2_decay(n_ranks, name):
    if name not in ran(n_ranks):
        pytest.skip("a server needs a rank of its own")
    expected, found = ridge(L2), results(n_ranks)[name]
    np.testing.assert_allclose(parameters(found), expected, atol=1e-3)
    _, _, mults = whole()
    minimum = loss(expected) + L2 / 2 * (mults[:, None] * expected**2).sum()
    reached = parameters(found)
    assert loss(reached) + L2 / 2 * (mults[:, None] * reached**2).sum() == pytest.approx(minimum, rel=1e-6)
    assert found["value"] == pytest.approx(minimum, rel=1e-5)


@N_RANKS
def test_the_minimum_without_decay_and_with_an_l1_decay(n_ranks):
    np.testing.assert_allclose(parameters(results(n_ranks)["no decay"]), ridge(0), atol=2e-3)
    found, expected = parameters(results(n_ranks)["l1"]), lasso(L1)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    np.testing.assert_array_equal(found == 0, expected == 0)
    assert (expected == 0).any()


@N_RANKS
def test_the_first_loss_is_the_mean_over_all_images(n_ranks):
    first = results(n_ranks)["plain"]["losses"][0]
    assert first == pytest.approx(loss(np.zeros((6, 2))), rel=1e-5)
    x, y, _ = whole()
    assert results(n_ranks)["part"]["losses"][0] == pytest.approx((y[:24] ** 2).sum() / 48, rel=1e-5)


@N_RANKS
def test_a_gradient_that_is_known_is_not_computed_again(n_ranks):
    found = results(n_ranks)["plain"]
    assert found["progress"].n_evaluations == found["progress"].n_trials + 1
    assert sum(found["counts"].values()) >= N_PORTIONS * found["progress"].n_evaluations
    part = results(n_ranks)["part"]["progress"]  # but for another batch it is
    assert part.n_evaluations == part.n_trials + N_STEPS


@N_RANKS
def test_a_run_that_goes_on_gives_the_same_bits(n_ranks):
    found = results(n_ranks)
    np.testing.assert_array_equal(found["then 6"]["weights"], found["12 steps"]["weights"])
    assert found["then 6"]["losses"] == found["12 steps"]["losses"][6:]
    assert found["then 6"]["pairs"] == found["12 steps"]["pairs"] == 5
    assert (found["then 6 of L1"]["weights"] != found["12 steps"]["weights"]).any()


@pytest.mark.mpi_job
@pytest.mark.parametrize("name", [name for name, run in RUNS.items()
                                  if run[0].get("deterministic") and name != "killed"])
def test_deterministic_runs_have_the_same_bits_on_any_number_of_ranks(name):
    one = results(1)[name.removesuffix(" servers")]
    three = results(3)[name]
    np.testing.assert_array_equal(one["weights"], three["weights"])
    assert one["losses"] == three["losses"]
    np.testing.assert_array_equal(results(1)["uncached"]["weights"], results(1)["steady"]["weights"])


@pytest.mark.mpi_job
@pytest.mark.parametrize("doomed", [
    pytest.param("2:6,1:40", marks=pytest.mark.thorough), f"1:{TESTS + 4},2:20"])  # in portions, one in its second test
def test_replicas_that_are_killed_cost_their_unsent_portions_only(tmp_path, doomed):
    worker.write_rows(tmp_path)
    launcher = mpirun(4)
    launcher[1:1] = ["--with-ft", "ulfm"]
    done = subprocess.run([*launcher, sys.executable, "-m", WORKER, str(tmp_path), doomed], cwd=ROOT,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found, whole = pickle.loads((tmp_path / "results_4").read_bytes()), results(1)["steady"]
    np.testing.assert_array_equal(found["weights"], whole["weights"])  # to the bit
    assert found["losses"] == whole["losses"]
    assert found["steps"] == [N_STEPS]  # of the one replica that is left
    n_needed = N_PORTIONS * found["progress"].n_evaluations
    assert n_needed <= sum(found["counts"].values()) <= n_needed + found["again"] + 2
    assert {0} < set(found["counts"]) <= {0, 1, 2}  # one that dies in a test may have been too late with all it did
    assert list(found["tests"]) == list(range(0, N_STEPS + 1, 3))  # each over all rows, on however many ranks
    assert list(found["tests"].values())[:-1] == pytest.approx(found["losses"][::3], rel=1e-5)


@pytest.mark.parametrize(("rank", "what"), [(0, "the coordinator"), (3, "a shard of all vectors")])
def test_a_lost_rank_that_had_what_nobody_else_has_is_one_line(rank, what):
    lasting = SimpleNamespace(messages=None, lost=lambda: ())
    world = SimpleNamespace(rank=1, n_ranks=4, fault_tolerant_messages=lambda: lasting)
    with pytest.raises(CommError, match=f"rank 1: rank {rank} is lost, which had {what}; -resume auto goes on from"):
        Rank(world, Layout(10, "float32", 3, 1, False, True))._lose(rank)


def test_ranks_that_hold_shards_and_compute_cannot_be_lost():
    world = SimpleNamespace(rank=0, n_ranks=3)
    with pytest.raises(UserError, match="-on_rank_loss shrink cannot be had without -servers"):
        Sandblaster.roles.place(world, worker.options_of(on_rank_loss="shrink"))


@pytest.mark.mpi_job
def test_every_replica_takes_part():
    for name, n_replicas in ("plain", 3), ("servers", 2):
        found = results(3)[name]
        assert len(found["n_passes"]) == n_replicas and min(found["n_passes"]) > 0
        assert sum(found["counts"].values()) <= sum(found["n_passes"])


DUMMY = """layer { name: "d" type: "DummyData" top: "x" top: "y"
  dummy_data_param { shape { dim: 2 dim: 5 } shape { dim: 2 dim: 2 } } }
"""
WRONG = {
    "momentum: 0.9": "momentum cannot be used with LBFGS", "iter_size: 2": "iter_size and clip_gradients cannot",
    "clip_gradients: 1": "iter_size and clip_gradients cannot", "base_lr: 0": "base_lr above 0",
    "snapshot_diff: true": "snapshot_diff must be false", "lbfgs_param { history: 0 }": "history must be 1 to 100",
    "lbfgs_param { c1: 0.9 c2: 0.1 }": "0 < c1 < c2 < 1",
    "lbfgs_param { max_trials: 0 }": "max_trials must be at least 1",
}


@pytest.mark.parametrize("text", WRONG)
def test_solvers_that_do_not_fit_are_one_line(tmp_path, text):
    with pytest.raises(UserError, match=WRONG[text]):
        build(tmp_path, text)


def test_data_that_cannot_be_read_in_portions_is_one_line(tmp_path):
    with pytest.raises(UserError, match="layer 'd': LBFGS reads images in portions, .* DummyData cannot"):
        build(tmp_path, "", DUMMY + NET.split("\n", 2)[2])


def build(folder, text, net=NET):
    worker.write_rows(folder)
    param = text_format.Merge(text, text_format.Parse(SOLVER, caffe_pb2.SolverParameter()))
    text_format.Parse(net.replace("FOLDER", str(folder)), param.net_param)
    return build_solver(Communicator.single(), param, worker.options_of())


def test_the_type_and_the_strategy_belong_together():
    one = Communicator.single()
    assert look_up("auto", "auto", one, solver_type="LBFGS") is look_up("sandblaster", "auto", one, solver_type="LBFGS")
    with pytest.raises(UserError, match="type LBFGS trains with -strategy sandblaster, not sc-b"):
        look_up("sc-b", "auto", one, solver_type="LBFGS")
    with pytest.raises(UserError, match="sandblaster is for solvers of type LBFGS, not SGD"):
        look_up("sandblaster", "auto", one, solver_type="SGD")
