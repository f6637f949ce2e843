"""ssp and downpour train a net with every awkward case: against sc-b, against sums of gradients, from one another's
states. One ``mpirun`` a number of ranks trains all."""

import atexit
import functools
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT
from tests.scaffe.training.parameter_server.worker import RUNS, SERVERS

WORKER = "tests.scaffe.training.parameter_server.worker"
pytestmark = pytest.mark.mpi_job
ranks = pytest.mark.parametrize("n_ranks", [pytest.param(2, marks=pytest.mark.thorough), 3])
ALL = {**RUNS, **SERVERS}


@functools.cache
def results(n_ranks):
    """What the runs ended with on that many ranks, by name."""
    place = tempfile.TemporaryDirectory()
    atexit.register(place.cleanup)
    done = subprocess.run([*mpirun(n_ranks), sys.executable, "-m", WORKER, place.name], cwd=ROOT, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return pickle.loads((Path(place.name) / f"results_{n_ranks}").read_bytes())


@ranks
@pytest.mark.parametrize("name", ALL)
def test_all_workers_end_with_the_same_finite_weights(n_ranks, name):
    found = results(n_ranks)[name]
    assert found["same"]
    assert np.isfinite(found["weights"]).all()
    assert np.abs(found["weights"] - found["first"]).max() > 1e-4


@ranks
@pytest.mark.parametrize("name, other", [("bsp", "sc-b"), ("bsp adam", "sc-b adam"), ("bsp adagrad", "sc-b adagrad"),
                                         ("bsp in buckets", "sc-b")])
@pytest.mark.parametrize("what", ["weights", "histories"])
def test_slack_0_gives_the_bits_of_synchronous_training(n_ranks, name, other, what):
    """Both sum in the ranks' order (sc-b by algorithm M)."""
    np.testing.assert_array_equal(results(n_ranks)[name][what], results(n_ranks)[other][what])


@ranks
def test_slack_0_clips_the_whole_gradient(n_ranks):
    """As synchronous training does; but for rounding, as the factor goes in before the sum."""
    found = results(n_ranks)
    bsp, same, unclipped = (found[name]["weights"] for name in ("bsp clipped", "sc-b clipped", "sc-b"))
    np.testing.assert_allclose(bsp, same, rtol=1e-4, atol=1e-6)
    assert np.abs(bsp - unclipped).max() > 1e-3


@ranks
@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("sum of")])
def test_every_gradient_is_applied_once(n_ranks, name):
    """Without momentum and decay, whatever the order: the weights moved by the sum of all workers' gradients, but for
    those of a warm start at the whole rate."""
    found, n_warm = results(n_ranks)[name], 3 if "warm" in name else 0
    n_workers = n_ranks - ("server" in name)
    assert [len(steps) for steps in found["steps"]] == [7, *[7 - n_warm] * (n_workers - 1)]
    moved = sum(step / n_workers for worker, steps in enumerate(found["steps"])
                for step in (steps if worker else steps[n_warm:]))
    moved = found["rates"] * (moved + sum(found["steps"][0][:n_warm]))
    change = np.where(found["rates"] > 0, found["weights"].astype(np.float64) - found["first"], 0)
    np.testing.assert_allclose(change, -moved, atol=2e-6)


@ranks
@pytest.mark.parametrize("name, slack", [("bsp", 0), ("bsp adam with a server", 0), ("ssp 1", 1), ("ssp adagrad", 2),
                                         ("ssp 1 with a server", 1)])
def test_nothing_older_than_the_slack_is_read(n_ranks, name, slack):
    figures = results(n_ranks)[name]["figures"]
    assert len(figures) == n_ranks - ("server" in name)
    assert all(worker.stalest <= slack for worker in figures)
    assert all(worker.n_pulls == worker.n_pushes == 12 * 4 for worker in figures)  # four layers have a rate


@ranks
def test_histories_lie_on_the_shards(n_ranks):
    """A worker keeps none but the root's of frozen layers: the convolution, BatchNorm's statistics."""
    first, *others = results(n_ranks)["ssp adagrad"]["n_bytes"]
    assert (first, sum(others)) == ((96 + 16 + 16 + 16 + 16) * 4, 0)


@ranks
@pytest.mark.parametrize("name", ["bsp", "sc-b", "async"])
def test_a_snapshot_holds_the_histories_of_its_clock(n_ranks, name):
    found = results(n_ranks)
    whole = found[f"{name} saved"]["histories"]
    file = found[f"{name} file"]
    assert file.any()
    np.testing.assert_array_equal(np.sort(whole[whole != 0]), np.sort(file[file != 0]))


@ranks
def test_a_snapshot_holds_the_last_steps(n_ranks):
    found = {name: results(n_ranks)[f"{name} saved"] for name in ("bsp", "sc-b", "async")}
    np.testing.assert_array_equal(found["bsp"]["last step"], found["sc-b"]["last step"])
    moves = found["bsp"]["rates"] > 0
    assert (found["async"]["last step"] != 0)[moves].mean() > 0.9


@ranks
@pytest.mark.parametrize("first", ["bsp", "sc-b"])
@pytest.mark.parametrize("then", ["bsp", "sc-b"])
def test_runs_that_go_on_from_a_snapshot_give_the_bits_of_synchronous_ones(n_ranks, first, then):
    found = results(n_ranks)
    for what in ("weights", "histories"):
        np.testing.assert_array_equal(found[f"{first}, then {then}"][what], found["sc-b, then sc-b"][what])


@ranks
@pytest.mark.parametrize("first", ["bsp", "async"])
def test_another_number_of_workers_goes_on_too(n_ranks, first):
    found = results(n_ranks)[f"{first}, then servers"]
    assert len(found["losses"]) == 6
    assert len(found["figures"]) == n_ranks - 1
    assert found["same"]
