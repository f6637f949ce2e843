"""The promises of a run: same losses on any number of ranks, same bits after a kill, a snapshot on a signal."""

import re
import signal
import subprocess

import pytest

from tests.scaffe.runs import command, losses, run, write_solver


@pytest.fixture(scope="module")
def alone(tmp_path_factory, lenet):
    """50 iterations on one rank, with snapshots every 20."""
    folder = tmp_path_factory.mktemp("alone")
    write_solver(folder, lenet, snapshot=20, snapshot_after_train=1)
    done = run(folder, "train", "-solver", "solver.prototxt")
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


@pytest.mark.mpi_job
@pytest.mark.parametrize("n_ranks", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_ranks_have_the_losses_of_one(tmp_path, lenet, alone, n_ranks):
    write_solver(tmp_path, lenet)
    done = run(tmp_path, "train", "-solver", "solver.prototxt", n_ranks=n_ranks)
    assert done.returncode == 0, done.stderr
    expected, found = losses(alone[1]), losses(done.stderr)
    assert sorted(found) == list(range(50))
    assert found == pytest.approx(expected, rel=1e-4)
    tests = [line.split("] ")[1] for line in alone[1].splitlines() if "accuracy" in line]
    assert [line.split("] ")[1] for line in done.stderr.splitlines() if "accuracy" in line] == tests


def test_one_seed_gives_the_same_bytes(tmp_path, lenet, alone):
    write_solver(tmp_path, lenet, snapshot=20, max_iter=20)
    assert run(tmp_path, "train", "-solver", "solver.prototxt").returncode == 0
    assert (tmp_path / "run_iter_20.caffemodel").read_bytes() == (alone[0] / "run_iter_20.caffemodel").read_bytes()
    assert not list(tmp_path.glob("*iter_50*"))


def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, lenet, alone):
    write_solver(tmp_path, lenet, snapshot=20, max_iter=100000, snapshot_after_train=1)
    killed = subprocess.Popen(command("train", "-solver", "solver.prototxt", "-threads", "1"), cwd=tmp_path,
                              stderr=subprocess.PIPE, text=True)
    for line in killed.stderr:
        if "Iteration 23 " in line:
            break
    killed.kill()
    killed.wait()
    write_solver(tmp_path, lenet, snapshot=20, snapshot_after_train=1)
    for path in tmp_path.glob("run_iter_40.*"):
        path.unlink()
    done = run(tmp_path, "train", "-solver", "solver.prototxt", "-resume", "auto")
    assert "Restoring previous solver status from run_iter_20.solverstate" in done.stderr
    assert (tmp_path / "run_iter_50.caffemodel").read_bytes() == (alone[0] / "run_iter_50.caffemodel").read_bytes()
    assert losses(done.stderr)[20] == losses(alone[1])[20]


@pytest.mark.mpi_job
def test_other_ranks_resume_it(tmp_path, lenet, alone):
    write_solver(tmp_path, lenet)
    state = alone[0] / "run_iter_40.solverstate"
    done = run(tmp_path, "train", "-solver", "solver.prototxt", "-snapshot", str(state), n_ranks=2)
    assert done.returncode == 0, done.stderr
    expected = losses(alone[1])
    assert losses(done.stderr) == pytest.approx({i: expected[i] for i in range(40, 50)}, rel=1e-4)


def test_hdf5_snapshots_resume_too(tmp_path, lenet, alone):
    write_solver(tmp_path, lenet, snapshot=20, max_iter=40, snapshot_format="HDF5")
    assert run(tmp_path, "train", "-solver", "solver.prototxt").returncode == 0
    write_solver(tmp_path, lenet, snapshot_after_train=1)
    done = run(tmp_path, "train", "-solver", "solver.prototxt", "-snapshot", "run_iter_40.solverstate.h5")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run_iter_50.caffemodel").read_bytes() == (alone[0] / "run_iter_50.caffemodel").read_bytes()


@pytest.mark.parametrize(("number", "n_ranks"), [(signal.SIGINT, 1), (signal.SIGTERM, 1),
                                                   pytest.param(signal.SIGUSR1, 2, marks=pytest.mark.mpi_job)])
def test_a_signal_snapshots_and_stops(tmp_path, lenet, number, n_ranks):
    write_solver(tmp_path, lenet, max_iter=1000000)
    process = subprocess.Popen(command("train", "-solver", "solver.prototxt", "-threads", "1", n_ranks=n_ranks),
                               cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "Iteration 3 " in line:
            process.send_signal(number)
            break
    log = process.stderr.read()
    assert process.wait(60) == 0, log
    assert "Optimization stopped early." in log
    state, = tmp_path.glob("run_iter_*.solverstate")
    assert state.with_suffix(".caffemodel").exists()


def test_finetuning_starts_from_the_weights(tmp_path, lenet, alone):
    write_solver(tmp_path, lenet, base_lr=0.0, max_iter=1)
    weights = alone[0] / "run_iter_40.caffemodel"
    done = run(tmp_path, "train", "-solver", "solver.prototxt", "-weights", str(weights))
    first_test = next(line for line in done.stderr.splitlines() if "Test net output #0" in line)
    at_40 = [line for line in alone[1].splitlines() if "Test net output #0" in line][2]
    assert first_test.split("] ")[1].split(" = ")[1] == at_40.split("] ")[1].split(" = ")[1]


@pytest.mark.mpi_job
def test_test_command_scores_what_training_scored(tmp_path, lenet, alone):
    write_solver(tmp_path, lenet)
    weights = str(alone[0] / "run_iter_40.caffemodel")
    done = run(tmp_path, "test", "-model", "net.prototxt", "-weights", weights, "-iterations", "3", n_ranks=2)
    at_40 = [line for line in alone[1].splitlines() if "Test net output #0" in line][2].split(" = ")[1]
    accuracy = [line for line in done.stderr.splitlines() if "accuracy" in line][-1].split(" = ")[1]
    assert "Batch 2, accuracy" in done.stderr
    assert accuracy == at_40  # three batches of 100 are the whole test set, whichever comes first


def test_time_prints_caffes_table(tmp_path, lenet):
    write_solver(tmp_path, lenet)
    done = run(tmp_path, "time", "-model", "net.prototxt", "-iterations", "2")
    assert done.returncode == 0, done.stderr
    for text in ("conv1\tforward: ", "conv1\tbackward: ", "Average Forward pass: ", "Average Backward pass: ",
                 "Average Forward-Backward: ", "Total Time: ", "*** Benchmark ends ***"):
        assert text in done.stderr


def test_no_progress_line_in_a_file(alone):
    assert "\r" not in alone[1]
    assert "Summary: 50 iterations" in alone[1]
    assert re.search(r"^I\d{4} \d\d:\d\d:\d\d\.\d{6} ", alone[1], re.MULTILINE)
