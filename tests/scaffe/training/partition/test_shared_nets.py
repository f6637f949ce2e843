"""Nets shared by real ranks end where one rank ends: weights, histories, tests, snapshots, resumed runs.

One MPI job of 4 ranks trains the net of nets.py in every way; one rank's run, without any of this, is the reference.
"""

import functools
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from scaffe.files import read_model, read_state
from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT
from tests.scaffe.training.partition.image_nets import WAYS as IMAGE_WAYS
from tests.scaffe.training.partition.large import N_PARAMETERS, ROOM
from tests.scaffe.training.partition.worker import ASYNCHRONOUS, N_ITERATIONS, RESUMED, RUNS, write_data

WORKER = "tests.scaffe.training.partition.worker"
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "1000000"}
"""Has malloc give back what is freed, so that it does not count for large.py's limit as memory that a rank has."""
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
pytestmark = pytest.mark.mpi_job
divided = pytest.mark.parametrize("name", [name for name, run in RUNS.items() if run[2] != "1"])


PLACE = tempfile.TemporaryDirectory(prefix="shared_nets")  # removed when the process ends


@functools.cache
def folder():
    """Where everything lies."""
    place = Path(PLACE.name)
    write_data(place)
    done = subprocess.run([*mpirun(4), sys.executable, "-m", WORKER, str(place)], cwd=ROOT, capture_output=True,
                          text=True, timeout=300, env=os.environ | RETURNED)
    assert done.returncode == 0, done.stderr[-3000:]
    return place


def results():
    return pickle.loads((folder() / "results").read_bytes())


def weights(name, iteration):
    """Layer → blobs of a snapshot."""
    return {layer: blobs for layer, _, blobs in read_model(folder() / f"{name}_iter_{iteration}.caffemodel") if blobs}


def reference_of(name):
    """One rank's run of the same net."""
    if name.startswith("uneven"):
        return "uneven_1"
    return "images" if RUNS[name][0] in IMAGE_WAYS else "clipped" if len(RUNS[name]) > 5 else "one"


def assert_close(name, reference, iteration=N_ITERATIONS, **close):
    found, wanted = weights(name, iteration), weights(reference, iteration)
    assert list(found) == list(wanted)
    for layer in wanted:
        for mine, other in zip(found[layer], wanted[layer], strict=True):
            np.testing.assert_allclose(mine, other, **close, err_msg=layer)


@divided
def test_fillers_give_one_ranks_weights_bit_for_bit(name):
    assert_close(name, reference_of(name), 0, rtol=0, atol=0)


@divided
def test_weights_and_histories_are_one_ranks_after_some_iterations(name):
    """Dropout's masks included, and gradients of two passes an iteration."""
    reference = reference_of(name)
    assert_close(name, reference, **CLOSE)
    found, wanted = (read_state(folder() / f"{run}_iter_{N_ITERATIONS}.solverstate") for run in (name, reference))
    for mine, other in zip(found.history, wanted.history, strict=True):
        np.testing.assert_allclose(mine, other, **CLOSE)
    first, last = weights(reference, 0), weights(reference, N_ITERATIONS)
    assert all(np.abs(last[layer][0] - first[layer][0]).max() > 0.002 for layer in first)


@divided
def test_tests_say_what_one_ranks_say(name):
    found, wanted = results()[name]["test"], results()[reference_of(name)]["test"]
    assert found.keys() == wanted.keys() >= {"acc", "loss"}
    for key in wanted:
        assert found[key] == pytest.approx(wanted[key], rel=1e-5)


@divided
def test_each_rank_holds_its_part_alone(name):
    """Of the split layers' parameters; all parts together are the whole, and what is not split is on every rank."""
    whole, n_partitions = results()[reference_of(name)]["held"][0], {"a": 4}.get(RUNS[name][2][0], RUNS[name][2])
    held = results()[name]["held"][:int(n_partitions)]
    assert max(held) < 0.8 * whole
    assert sum(held) >= whole


@divided
def test_a_replicas_ranks_have_the_same_bits_where_nothing_is_split(name):
    assert len(set(map(tuple, results()[name]["common"]))) == 1


@pytest.mark.parametrize("first", RESUMED)
def test_a_run_goes_on_on_other_ranks_in_another_way(first):
    """Masks included: ranks that share nets go on with one rank's random numbers, and the other way round."""
    name = f"{first}_then_{RESUMED[first]}"
    assert read_state(folder() / f"{name}_iter_{N_ITERATIONS}.solverstate").iteration == N_ITERATIONS
    assert_close(name, "one", **CLOSE)


def test_clipping_counts():
    """So that the runs with it say something."""
    clipped, plain = weights("clipped", N_ITERATIONS), weights("one", N_ITERATIONS)
    assert np.abs(clipped["fc1"][0] - plain["fc1"][0]).max() > 0.01


@pytest.mark.parametrize("strategy", ASYNCHRONOUS)
def test_replicas_that_are_not_in_step_learn_and_meet_once_when_a_rank_wants_to(strategy):
    (before, after), met = results()["asynchronous"][strategy]
    assert after < 0.95 * before  # 0.76 to 0.85: which updates a replica sees first is chance
    assert len(met[0]) == 1
    assert met == [met[0]] * 4


@pytest.mark.parametrize(("case", "line"), [
    ("divides", "-partitions 3 does not divide 4 ranks into replicas of equal size"),
    ("server", "-partitions 2 wants -servers 0: workers hold their parts' shards"),
    ("lost", "-partitions 2 does not go with -on_rank_loss"),
    ("uneven refused", "net_param: layer 'data' (HDF5Data): batch_size 21 is not divisible by 2 ranks that share a "
                       "replica (-partitions); change it, or train with -scal weak")])
def test_what_cannot_be_is_one_line_on_every_rank(case, line):
    assert results()["refused"][case] == [line] * 4


def test_a_net_that_one_rank_has_no_memory_for_trains_on_four():
    """Each with the same limit; fillers, the planner, snapshots, weights and states included."""
    assert 3 * 4 * N_PARAMETERS > 1.25 * ROOM
    assert "Unable to allocate" in results()["large"]
    assert_close("shared", "roomy", 4, **CLOSE)


def test_batch_norms_statistics_are_the_same_in_a_replica():
    assert len(set(results()["statistics"])) == 1


def test_all_ranks_plan_by_the_same_measured_speeds():
    first, *others = results()["measured"]
    assert others == [first] * 3
    assert 0 < first.multiply_adds_per_second != 1e10  # the flag's
    assert 0 < first.machine.inter_bandwidth != 1e6
    assert min(first.machine.sum_bandwidth, first.machine.inter_latency, first.update_bandwidth,
               first.copy_bandwidth) > 0
    assert (first.n_ranks, first.n_images, first.ranks_per_node) == (4, 8, 2)
