"""ssp and downpour by the command line: the example's net, signals, states that go on, what is refused."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scaffe.files import read_state
from tests.mpirun import MPIRUN
from tests.scaffe.runs import ROOT, run, write_solver

pytestmark = pytest.mark.mpi_job
NET = """
layer { name: "d" type: "DummyData" top: "data" top: "label" dummy_data_param { shape { dim: 8 dim: 20 }
  shape { dim: 8 } data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def ranks_in(folder):
    """Process numbers of the ranks that run there, ascending."""
    def runs(pid):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            return Path(f"/proc/{pid}/cwd").readlink() == folder and words[1:3] == [b"-m", b"scaffe"]
        except OSError:
            return False

    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and runs(path.name))


def accuracies(log):
    return [float(text) for text in re.findall(r"accuracy = (\S+)", log)]


def test_the_examples_net_learns_and_goes_on_with_others(tmp_path, lenet):
    """Servers of their own and a slack; then a state of two workers on three, and of three on one.

    What workers that do not wait have learned at one moment goes with how far they are apart; what one rank makes of it
    does not.
    """
    last = None
    for flags, n_ranks, more in ((("-strategy", "ssp", "-slack", "2", "-servers", "1"), 3, ()),
                                 (("-strategy", "downpour", "-n-sync", "2", "-scal", "weak"), 3, ("-resume", "auto")),
                                 (("-strategy", "ssp", "-timeline", "trace.json"), 1, ("-resume", "auto"))):
        done_before = 20 * len(list(tmp_path.glob("run_iter_*.solverstate")))
        write_solver(tmp_path, lenet, max_iter=done_before + 20, test_interval=20, snapshot=20,
                     snapshot_after_train=True, momentum=0, base_lr=0.03)
        done = run(tmp_path, "train", "-solver", "solver.prototxt", *flags, *more, n_ranks=n_ranks)
        assert done.returncode == 0, done.stderr
        assert read_state(tmp_path / f"run_iter_{done_before + 20}.solverstate").iteration == done_before + 20
        assert "Staleness: " in done.stderr
        assert "AdaGrad" not in done.stderr
        if more:  # it tests first what it goes on from
            assert accuracies(done.stderr)[0] == pytest.approx(last, abs=1e-6)
        last = accuracies(done.stderr)[-1]
    assert last > 0.65
    trace = (tmp_path / "trace.json").read_text()
    assert '"pull conv1, 0 clocks old"' in trace
    assert '"ph":"C","name":"pushes"' in trace


@pytest.mark.parametrize("n_ranks", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_momentum_on_several_replicas_is_said_at_the_start(tmp_path, n_ranks):
    write_solver(tmp_path, NET, test_iter=None, test_interval=0, max_iter=1)
    done = run(tmp_path, "train", "-solver", "solver.prototxt", "-strategy", "downpour", n_ranks=n_ranks)
    assert done.returncode == 0, done.stderr
    said = [line.partition("] ")[2] for line in done.stderr.splitlines() if "AdaGrad" in line]
    assert said == ['-strategy downpour with a momentum of 0.9 on 2 replicas may diverge: DistBelief (NIPS 2012, 4.1) '
                    'recommends AdaGrad (type: "AdaGrad", no momentum) and a warm start (-warm_start)'] * (n_ranks - 1)


def test_a_signal_stops_all_workers_after_the_same_iteration(tmp_path):
    """Only the server and one worker get it; the workers may be any number of iterations apart."""
    write_solver(tmp_path, NET, test_iter=None, test_interval=0, max_iter=10**9, display=200)
    process = subprocess.Popen([MPIRUN, "-np", "3", sys.executable, "-m", "scaffe", "train", "-solver",
                                "solver.prototxt", "-threads", "1", "-strategy", "ssp", "-slack", "inf", "-servers",
                                "1"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"PYTHONPATH": str(ROOT)})
    try:
        for line in process.stderr:
            if "Iteration 200 " in line:
                _, *others = ranks_in(tmp_path)
                assert len(others) == 2
                for rank in others:
                    os.kill(rank, signal.SIGUSR1)
                break
        said = process.communicate(timeout=90)[1]
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.stderr.close()
    stopped = int(re.search(r"snapshot and stop after iteration (\d+)", said)[1])
    assert [path.name for path in tmp_path.glob("*.solverstate")] == [f"run_iter_{stopped}.solverstate"]


@pytest.mark.parametrize(("flags", "code", "said"), [
    (("-strategy", "ssp", "-servers", "2"), 1, "servers must be from 0 to 1 on 2 ranks"),
    (("-strategy", "ssp", "-slack", "-1"), 2, "train: -slack must be inf or a whole number from 0 to 2^31-1, got '-1'"),
    (("-strategy", "sc-b", "-slack", "1"), 2, "train: -slack is a flag of ssp, not of -strategy sc-b"),
    (("-strategy", "ssp", "-n-push", "3"), 2, "train: -n_push is a flag of downpour, not of -strategy ssp"),
    (("-strategy", "downpour", "-n-sync", "3", "-n-push", "2"), 1, "-n_sync 3 sets n_fetch and n_push")])
def test_what_is_refused_is_one_line(tmp_path, flags, code, said):
    write_solver(tmp_path, NET, test_iter=None, test_interval=0)
    done = run(tmp_path, "train", "-solver", "solver.prototxt", *flags, n_ranks=2, timeout=120)
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if said in line]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
