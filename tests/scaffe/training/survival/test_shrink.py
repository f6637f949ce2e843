"""Training goes on without ranks that are killed, and ends with the weights of a run that nobody disturbed."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from scaffe.files.weights import read_model
from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT
from tests.slurm.runs import write

pytestmark = pytest.mark.mpi_job
N_ITERATIONS, DEADLINE_SECONDS = 14, 600
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "tests/slurm"), "PYTHONWARNINGS": "ignore"}


def make(folder, databases, victims):
    """A net without random numbers, in which `victims` (rank:pass,...) are killed."""
    write(folder, databases, display=1, max_iter=N_ITERATIONS, layer="Doomed", param=victims,
          more="clip_gradients: 0.7 weight_decay: 0.001")
    net = folder / "net.prototxt"
    net.write_text("\n".join(line for line in net.read_text().splitlines() if "Dropout" not in line))
    return folder


def train(folder, *flags, n_ranks=1, fault_tolerant=True, **variables):
    """Runs the solver of a folder to its end."""
    launcher = mpirun(n_ranks) if n_ranks > 1 else []
    if launcher and fault_tolerant:
        launcher[1:1] = ["--with-ft", "ulfm"]
    command = [*launcher, sys.executable, "-m", "scaffe", "train", "-solver", "solver.prototxt", "-threads", "1",
               *flags]
    return subprocess.run(command, cwd=folder, env=os.environ | ENVIRONMENT | variables, capture_output=True, text=True,
                          errors="replace", timeout=DEADLINE_SECONDS, check=False)


def weights(folder):
    """All parameters after the last iteration, in one row."""
    layers = read_model(folder / f"run_iter_{N_ITERATIONS}.caffemodel")
    return np.concatenate([np.ravel(blob) for _, _, blobs in layers for blob in blobs])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, databases):
    folder = make(tmp_path_factory.mktemp("undisturbed"), databases, "")
    result = train(folder)
    assert result.returncode == 0, result.stderr
    return weights(folder)


@pytest.mark.parametrize(("strategy", "victims"), [
    ("sc-b", "0:6"),  # the root: parameters and momentum live on in the second copy
    ("sc-obr", "1:4,0:10"),  # the copy, then the root; 16 images are shared out over 3 ranks, then over 2
    ("sc-rs", "2:5,3:5"),  # two at once, neighbours: one part is left nowhere but in the gathered parameters
    ("sc-rs", "3:5,0:9:STOP"),  # the root is stopped, for longer than the deadline
])
def test_the_weights_are_those_of_one_undisturbed_rank(tmp_path, databases, undisturbed, strategy, victims):
    result = train(make(tmp_path, databases, victims), "-strategy", strategy, "-on_rank_loss", "shrink", n_ranks=4,
                   SCAFFE_DEADLINE="3" if "STOP" in victims else "900")
    assert (": it counts as lost, and was ended" in result.stderr) == ("STOP" in victims)
    assert result.returncode == 0, result.stderr
    assert "Optimization Done" in result.stderr
    n_left = 4 - len(victims.split(","))
    assert re.findall(r"; (\d) go on", result.stderr)[-1] == str(n_left), result.stderr
    assert "the global batch stays 16 images" in result.stderr
    assert f"on {n_left} rank(s), 16 images an iteration" in result.stderr
    if victims == "2:5,3:5":
        assert "The histories of lost ranks begin at zero" in result.stderr
        assert np.isfinite(weights(tmp_path)).all()
    else:
        np.testing.assert_allclose(weights(tmp_path), undisturbed, rtol=2e-3, atol=2e-6)
    shown = [int(number) for number in re.findall(r"Iteration (\d+) \(", result.stderr)]
    assert sorted(set(shown)) == list(range(N_ITERATIONS))
    assert len(shown) <= N_ITERATIONS + len(victims.split(","))  # again only what was under way


def test_without_copies_the_root_takes_its_momentum_along(tmp_path, databases):
    folder = make(tmp_path, databases, "0:9")
    with (folder / "solver.prototxt").open("a") as solver:
        solver.write("snapshot: 4\n")
    result = train(folder, "-strategy", "sc-b", "-on_rank_loss", "shrink", "-history_copies", "0", "-scal", "weak",
                   n_ranks=2)
    assert result.returncode == 0, result.stderr
    assert re.search(r"histories of lost ranks are those of .*run_iter_8.solverstate: no second copy", result.stderr)
    assert "Weak scaling: 16 images a rank as before, so the global batch shrinks to 16;" in result.stderr
    assert "Optimization Done" in result.stderr


@pytest.mark.parametrize(("flags", "is_tolerant", "line"), [
    ((), False, "the job was started without fault tolerance, which mpirun --with-ft ulfm (Open MPI 5) has"),
    (("-strategy", "ssp"), True, "this strategy ends when a rank is lost; sc-b, sc-ob, sc-obr, sc-rs and sandblaster "
                                 "go on")])
def test_what_cannot_be_had_is_one_line(tmp_path, databases, flags, is_tolerant, line):
    folder = make(tmp_path, databases, "")
    result = train(folder, "-on_rank_loss", "shrink", *flags, n_ranks=2, fault_tolerant=is_tolerant)
    assert result.returncode != 0
    assert f"scaffe: -on_rank_loss shrink cannot be had: {line}" in result.stderr
    assert result.stderr.count("cannot be had") == 1
