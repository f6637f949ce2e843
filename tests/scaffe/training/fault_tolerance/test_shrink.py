"""Training goes on without ranks that are killed, and ends with the weights of a run that nobody disturbed."""

import re

import numpy as np
import pytest

from tests.scaffe.training.fault_tolerance.runs import N_ITERATIONS, make, train, weights

pytestmark = pytest.mark.mpi_job


@pytest.mark.parametrize(("strategy", "victims"), [
    pytest.param("sc-b", "0:6", marks=pytest.mark.thorough),  # the root: what it had lives on in the second copy
    ("sc-obr", "1:4,0:10"),  # the copy, then the root; 16 images are shared out over 3 ranks, then over 2
    # two at once, neighbours: one part is left nowhere but in the gathered parameters
    pytest.param("sc-rs", "2:5,3:5", marks=pytest.mark.thorough),
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
    assert re.search(r"go on \((\d+\.\d\d) s: shrink \d+\.\d\d, tell .*rebuild .*meet \d+\.\d\d\)", result.stderr)
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


def test_a_node_that_is_lost_takes_no_second_copy_along(tmp_path, databases, undisturbed):
    result = train(make(tmp_path, databases, "2:5,3:5"), "-strategy", "sc-rs", "-on_rank_loss", "shrink", n_ranks=4,
                   SCAFFE_RANKS_PER_NODE="2")
    assert result.returncode == 0, result.stderr
    assert "The histories of lost ranks" not in result.stderr
    np.testing.assert_allclose(weights(tmp_path), undisturbed, rtol=2e-3, atol=2e-6)


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


@pytest.mark.parametrize(("how", "flags", "is_tolerant", "line"), [
    ("shrink", (), False, "the job was started without fault tolerance, which mpirun --with-ft ulfm (Open MPI 5) has"),
    ("replace", ("-strategy", "ssp", "-servers", "1"), True,
     "with -servers 1 lost ranks are not replaced; shrink goes on")])
def test_what_cannot_be_had_is_one_line(tmp_path, databases, how, flags, is_tolerant, line):
    folder = make(tmp_path, databases, "")
    result = train(folder, "-on_rank_loss", how, *flags, n_ranks=2, fault_tolerant=is_tolerant)
    assert result.returncode != 0
    assert f"scaffe: -on_rank_loss {how} cannot be had: {line}" in result.stderr
    assert result.stderr.count("cannot be had") == 1
