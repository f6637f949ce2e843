"""Three ranks share a batch of 16 as 6, 5 and 5, under every strategy, and train as one rank does."""

import functools
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT, losses, run, write_solver
from tests.scaffe.training.uneven_worker import BATCH, IGNORED, IN_STEP, N_CLASSES, RUNS, rows, write_rows

N_RANKS, RATE, ITER_SIZE = 3, 0.1, 2
CLOSE = {"rtol": 1e-4, "atol": 1e-6}
PLACE = tempfile.TemporaryDirectory(prefix="uneven")  # removed when the process ends
pytestmark = pytest.mark.mpi_job


@functools.cache
def results():
    """What the runs ended with on three ranks, and on one."""
    place = Path(PLACE.name)
    write_rows(place)
    done = subprocess.run([*mpirun(N_RANKS), sys.executable, "-m", "tests.scaffe.training.uneven_worker", str(place)],
                          cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return pickle.loads((place / "results").read_bytes())


def batches(ranks=N_RANKS):
    """The images and labels of each pass of the first iteration, each cut into the ranks' parts."""
    x, labels = rows()
    for first in range(0, ITER_SIZE * BATCH, BATCH):
        own = [np.arange(first + rank, first + BATCH, ranks) for rank in range(ranks)]
        yield [(x[part].astype(np.float64), labels[part].astype(int)) for part in own]


def gradients(weights, x, counted):
    """Of the sum over images of counted · -log softmax: naively, and that sum."""
    w1, b1, w2, b2 = (w.astype(np.float64) for w in weights)
    hidden = np.maximum(x @ w1.T + b1, 0)
    scores = np.exp(hidden @ w2.T + b2)
    chances = scores / scores.sum(1, keepdims=True)
    at_scores = chances * counted.sum(1, keepdims=True) - counted
    at_hidden = at_scores @ w2 * (hidden > 0)
    loss = -(counted * np.log(chances)).sum()
    return [at_hidden.T @ x, at_hidden.sum(0), at_scores.T @ hidden, at_scores.sum(0)], loss


def step_of(weights, weight_of):
    """The weights after one iteration of plain SGD, where an image counts as ``weight_of(labels of its part)`` says."""
    total = [np.zeros(w.shape) for w in weights]
    for parts in batches():
        for x, labels in parts:
            found, _ = gradients(weights, x, np.eye(N_CLASSES)[labels] * weight_of(labels)[:, None])
            total = [t + f / ITER_SIZE for t, f in zip(total, found, strict=True)]
    return [w - RATE * t for w, t in zip(weights, total, strict=True)]


def mean(labels):
    """An image's weight in the mean over the batch."""
    return np.full(len(labels), 1 / BATCH)


def assert_weights(found, wanted):
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, other, **CLOSE)


@pytest.mark.parametrize("name", [*IN_STEP, "plateau"])
def test_weights_losses_and_tests_are_one_ranks(name):
    """With iter_size 2, momentum, decay and clipping; a rate that falls with the loss must see the mean of all."""
    found, alone = (each[name] for each in results())
    assert_weights(found["after"], alone["after"])
    assert np.abs(found["after"][0] - found["before"][0]).max() > 0.05
    assert found["images"] == alone["images"] == BATCH * ITER_SIZE
    assert len(found["train"]) == 5
    for phase in ("test",) if name.startswith("ssp") else ("train", "test"):  # ssp shows a worker's own losses
        for mine, other in zip(found[phase], alone[phase], strict=True):
            for value in {"smoothed_loss", "loss", "acc", "learning_rate"} & other.keys():
                assert mine[value] == pytest.approx(other[value], rel=1e-4), (phase, value)


def test_a_rate_on_a_plateau_has_fallen():
    """So that the run with it says something."""
    rates = [shown["learning_rate"] for shown in results()[0]["plateau"]["train"]]
    assert min(rates) < max(rates)


@pytest.mark.parametrize("name", ["once", "once ssp", "once downpour"])
def test_one_iteration_is_the_formulas(name):
    """All workers' updates of one iteration move the weights by the mean gradient of the batch, in step or not."""
    found = results()[0][name]
    assert_weights(found["after"], step_of(found["before"], mean))


def test_a_warm_start_is_one_replicas_own():
    """It trains on its own images at the whole rate."""
    found = results()[0]["once warm"]
    total = [np.zeros(w.shape) for w in found["before"]]
    for parts in batches():
        x, labels = parts[0]
        own, _ = gradients(found["before"], x, np.eye(N_CLASSES)[labels] / len(labels))
        total = [t + g / ITER_SIZE for t, g in zip(total, own, strict=True)]
    assert_weights(found["after"], [w - RATE * t for w, t in zip(found["before"], total, strict=True)])


@pytest.mark.parametrize("name", ["once ssp", "once downpour"])
def test_who_is_not_in_step_shows_its_own_loss(name):
    found = results()[0][name]
    own = [gradients(found["before"], x, np.eye(N_CLASSES)[labels] / len(labels))[1]
           for (x, labels), *_ in batches()]
    assert found["train"][0]["smoothed_loss"] == pytest.approx(np.mean(own), rel=1e-5)


def test_labels_that_are_ignored_leave_each_parts_mean_weighted_by_its_images():
    """As even shares have it: ranks know their own count of labels alone."""
    def weight(labels):
        counted = labels != IGNORED
        return counted / counted.sum() * len(labels) / BATCH

    found = results()[0]["once ignored"]
    assert_weights(found["after"], step_of(found["before"], weight))


def test_a_loss_that_is_a_sum_stays_the_mean_of_the_ranks_sums():
    """``normalization: NONE``: as even shares have it, 1/P of the sum over all images."""
    found = results()[0]["once none"]
    assert_weights(found["after"], step_of(found["before"], lambda labels: np.full(len(labels), 0.05 / N_RANKS)))
    total = sum(gradients(found["before"], x, np.eye(N_CLASSES)[labels])[1]
                for parts in batches() for x, labels in parts)
    assert found["train"][0]["smoothed_loss"] == pytest.approx(0.05 * total / N_RANKS / ITER_SIZE, rel=1e-5)


def test_losses_of_both_kinds_beside_one_another():
    found = results()[0]["once both"]
    assert_weights(found["after"], step_of(found["before"], lambda labels: mean(labels) + 0.05 / N_RANKS))


def test_losses_of_layers_that_are_no_loss_layers():
    """One rank's net with the sum's weight at 1/P: the sum is over images, the mean over them too."""
    run = results()[0]["once sums"]
    wanted = step_of(run["before"], mean)
    w1, b1, w2, b2 = (w.astype(np.float64) for w in run["before"])
    for parts in batches():
        x = np.concatenate([part[0] for part in parts])
        hidden = np.maximum(x @ w1.T + b1, 0)
        at_scores = 0.02 / N_RANKS * (hidden @ w2.T + b2)
        at_hidden = (at_scores @ w2 + 0.1 / hidden.size) * (hidden > 0)
        found = [at_hidden.T @ x, at_hidden.sum(0), at_scores.T @ hidden, at_scores.sum(0)]
        for w, g in zip(wanted, found, strict=True):
            w -= RATE * g / ITER_SIZE
    assert_weights(run["after"], wanted)


def test_outputs_of_single_images_are_displayed_as_far_as_all_ranks_have_them():
    names = [name for name in results()[0]["sc-b"]["train"][0] if name.startswith("best")]
    assert names == [f"best/{i}" for i in range(BATCH // N_RANKS)]


def test_the_command_says_the_shares_in_one_line(tmp_path, lenet):
    write_solver(tmp_path, lenet, max_iter=3, test_interval=2)
    three, one = (run(tmp_path, "train", "-solver", "solver.prototxt", n_ranks=n) for n in (N_RANKS, 1))
    assert three.returncode == one.returncode == 0, three.stderr
    assert re.findall(r"] (Uneven .*)", three.stderr) == [
        "Uneven shares: the batch of 64 images is 22 on 1 rank(s) and 21 on 2; losses and gradients are weighted by it"]
    assert "Training on 3 rank(s), 64 images an iteration" in three.stderr
    assert "Uneven" not in one.stderr
    assert losses(three.stderr) == pytest.approx(losses(one.stderr), rel=1e-4)
    for value in (r"Test net output #0: accuracy = (\S+)", r"Test net output #1: loss = (\S+)"):
        found, wanted = (list(map(float, re.findall(value, log.stderr))) for log in (three, one))
        assert found == pytest.approx(wanted, rel=1e-4)
        assert len(found) == 2


def test_every_run_is_looked_at():
    assert set(RUNS) == set(results()[0])
