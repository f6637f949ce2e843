"""All strategies train a net with every awkward case alike: shared, frozen and in-place layers, two losses, BatchNorm's
statistics, Dropout, iter_size 2, clipping. One ``mpirun`` a number of ranks trains all of them."""

import atexit
import functools
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from scaffe.nets.flat_params import ALIGN_ELEMS
from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT
from tests.scaffe.training.strategies_worker import HALVES, OTHERS, ROOTED, RULED

WORKER = Path(__file__).parent / "strategies_worker.py"
CLOSE = {"rtol": 2e-5, "atol": 2e-6}
"""Of float32 sums in another order: measured 2e-7 of the weights' norm after 50 iterations."""
ITEM = 4  # bytes of a float32
pytestmark = pytest.mark.mpi_job
ranks = pytest.mark.parametrize("n_ranks", [3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (2, 4))])


@functools.cache
def folder():
    """Where workers put results and states; the state of one rank lies there."""
    place = tempfile.TemporaryDirectory()
    atexit.register(place.cleanup)
    start([], place.name)
    return Path(place.name)


def start(launcher, place):
    done = subprocess.run([*launcher, sys.executable, str(WORKER), str(place)], cwd=ROOT, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


@functools.cache
def results(n_ranks):
    """What the runs ended with on that many ranks, by run."""
    start(mpirun(n_ranks), folder())
    return pickle.loads((folder() / f"results_{n_ranks}").read_bytes())


def names(runs):
    return ["-".join(map(str, run[:3])) for run in runs]


@ranks
@pytest.mark.parametrize("run", (runs := [*ROOTED, *OTHERS, *HALVES, *RULED]), ids=names(runs))
def test_all_ranks_end_with_the_same_parameters(n_ranks, run):
    found = results(n_ranks)[run]
    assert found["same"]
    assert np.abs(found["weights"]).max() > 0.01


@ranks
@pytest.mark.parametrize("run", ROOTED, ids=names(ROOTED))
def test_an_algorithm_gives_the_same_bits_under_every_strategy_with_a_root(n_ranks, run):
    found, whole = results(n_ranks)[run], results(n_ranks)["sc-b", run[1], 0]
    for what in ("weights", "histories"):
        np.testing.assert_array_equal(found[what], whole[what])


@ranks
@pytest.mark.parametrize("run", (runs := [("sc-b", "CB-2", 0), *OTHERS]), ids=names(runs))
def test_another_order_of_summing_changes_the_last_bits_alone(n_ranks, run):
    found, chain = results(n_ranks)[run], results(n_ranks)["sc-b", "C", 0]
    np.testing.assert_allclose(found["weights"], chain["weights"], **CLOSE)
    np.testing.assert_allclose(found["histories"], chain["histories"], rtol=1e-3, atol=1e-8)


@ranks
def test_rounded_gradients_give_the_same_bits_under_every_strategy_with_a_root(n_ranks):
    first, *others = (results(n_ranks)[run] for run in HALVES if run[1] == "C:bf16")
    assert len(others) == 2
    for other in others:
        np.testing.assert_array_equal(other["weights"], first["weights"])


@ranks
@pytest.mark.parametrize(("run", "most"), [(run, 0.01 if "bf16" in run[1] else 0.001) for run in HALVES],
                         ids=names(HALVES))
def test_rounded_gradients_train_nearly_the_same(n_ranks, run, most):
    found, chain = results(n_ranks)[run]["weights"], results(n_ranks)["sc-b", "C", 0]["weights"]
    assert 0 < np.linalg.norm(found - chain) < most * np.linalg.norm(chain)


@ranks
@pytest.mark.parametrize("what", ["weights", "histories", "steps"])
def test_ranks_that_update_parts_give_what_the_root_gives(n_ranks, what):
    """AdaGrad, whose histories of frozen layers change too, with the last steps left in the diffs."""
    by_root, by_parts = (results(n_ranks)[run] for run in RULED)
    np.testing.assert_allclose(by_parts[what], by_root[what], **CLOSE)
    np.testing.assert_array_equal(np.sign(by_parts["histories"]), np.sign(by_root["histories"]))


@ranks
@pytest.mark.parametrize("run", (runs := [*ROOTED, *OTHERS, *RULED]), ids=names(runs))
def test_each_history_lies_on_one_rank_alone(n_ranks, run):
    """One history: on the root, or under sc-rs in equal parts, but for frozen layers, which are the root's."""
    found = results(n_ranks)[run]
    first, *others = found["n_bytes"]
    whole, n_frozen = found["weights"].nbytes, 96 + 16 + 16 + 16 + 16  # the frozen convolution, BatchNorm's statistics
    if run[0] != "sc-rs":
        assert (first, sum(others)) == (whole, 0)
        return
    ragged = found["n_buckets"] * 2 * ALIGN_ELEMS * ITEM  # a part begins where a cache line does, and ends anywhere
    for n_bytes in (first - n_frozen * ITEM, *others):
        assert abs(n_bytes - (whole - n_frozen * ITEM) / n_ranks) <= ragged


@ranks
@pytest.mark.parametrize("strategy", ["sc-rs", "sc-b"])
def test_a_state_of_any_number_of_ranks_gives_each_rank_its_histories(n_ranks, strategy):
    found = {name: same for (name, by), same in results(n_ranks)["restored"].items() if by == strategy}
    assert {"ranks_1_iter_3.solverstate", f"ranks_{n_ranks}_iter_3.solverstate"} <= set(found)
    assert all(found.values()), found
