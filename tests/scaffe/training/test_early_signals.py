"""Signals that come while a run starts have the effect that they have later."""

import os
import re
import signal
import subprocess

import pytest

from tests.scaffe.runs import ROOT, command, write_solver
from tests.scaffe.training.test_signals import NET, _hear, _read_until

# Python imports a sitecustomize first of all: it sends the process a signal when a module is first imported, or a file
# or folder is opened or made.
SENDER = """
import os, signal, sys
wanted = [word.split("=") for word in os.environ["SIGNAL_AT"].split()]
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "1")
def at_import(event, arguments):
    for place in list(wanted):
        if event in ("import", "open", "os.mkdir") and str(arguments[0]) == place[0] and rank == "1":
            wanted.remove(place)
            os.kill(os.getpid(), getattr(signal, place[1]))
sys.addaudithook(at_import)
"""


# Python collects what its modules hold after it has given signals their default action.
LATE = """
class Late:
    def __del__(self, kill=os.kill, me=os.getpid, number=getattr(signal, os.environ.get("SIGNAL_LATE", ""), None)):
        if number is not None:
            kill(me(), number)
late = Late()
"""


def train(folder, n_ranks, max_iter, signal_at, *flags):
    (folder / "sitecustomize.py").write_text(SENDER + LATE)
    write_solver(folder, NET, test_iter=None, test_interval=0, max_iter=max_iter, display=1)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "SIGNAL_AT": signal_at}
    return subprocess.run(command("train", "-solver", "solver.prototxt", "-threads", "1", *flags, n_ranks=n_ranks),
                          cwd=folder, env=environment, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(("n_ranks", "signal_at"), [
    (1, "scaffe.cli.main=SIGTERM"),  # before anything else is imported
    (1, "numba=SIGUSR1 scaffe.nets.net=SIGINT"),
    pytest.param(2, "mpi4py.MPI=SIGTERM scaffe.layers.fully_connected.inner_product=SIGUSR1",
                 # rank 1 alone; this import starts MPI
                 marks=pytest.mark.mpi_job),
])
def test_the_run_stops_after_its_first_iteration(tmp_path, n_ranks, signal_at):
    done = train(tmp_path, n_ranks, 10**6, signal_at)
    assert done.returncode == 0, done.stderr
    assert "Optimization stopped early." in done.stderr
    assert (tmp_path / "run_iter_1.solverstate").exists()


def test_a_hang_up_snapshots_and_the_run_goes_on(tmp_path):
    done = train(tmp_path, 1, 3, "numpy=SIGHUP")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.glob("*.solverstate")] == ["run_iter_1.solverstate"]
    assert re.search("Iteration 2 .*Optimization Done", done.stderr, re.DOTALL)


def test_none_is_none_and_a_second_interrupt_ends_the_run(tmp_path):
    assert "Optimization Done" in train(tmp_path, 1, 2, "numpy=SIGINT", "-sigint_effect", "none").stderr
    assert train(tmp_path, 1, 10**6, "numpy=SIGINT numba=SIGINT").returncode == -2


@pytest.mark.parametrize("number", [pytest.param("SIGUSR1", marks=pytest.mark.thorough), "SIGTERM", "SIGINT",
                                    pytest.param("SIGHUP", marks=pytest.mark.thorough)])
def test_one_that_comes_when_all_is_done_leaves_a_success(tmp_path, monkeypatch, number):
    """As where a launcher hands a signal to one rank later than to the one that stopped all for it."""
    monkeypatch.setenv("SIGNAL_LATE", number)
    done = train(tmp_path, 1, 2, "")
    assert done.returncode == 0, done.stderr
    assert "Optimization Done" in done.stderr


FEATURES = 'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }'


def interrupted(folder, *words, at=""):
    """How a command ends, and what it says, after a SIGINT at some import or file, or without one."""
    (folder / "sitecustomize.py").write_text(SENDER)
    (folder / "net.prototxt").write_text(FEATURES)
    (folder / "log").write_text("I0101 00:00:00.000000 7 solver.py:98] Solving\n")
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "SIGNAL_AT": f"{at}=SIGINT"}
    done = subprocess.run(command(*words), cwd=folder, env=environment, capture_output=True, text=True, timeout=100,
                          preexec_fn=_hear)
    return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith("I")]


@pytest.mark.parametrize(("line", "at"), [
    ("simulate -ranks 4 -max_bytes 1024 -out made", "made"),
    *(pytest.param(*case, marks=pytest.mark.thorough) for case in (
        ("time -model net.prototxt", "net.prototxt"),
        ("report log", "log"), ("report log", "numpy"), ("summary net.prototxt", "net.prototxt"),
        ("extract_features none net.prototxt x db 2 lmdb", "net.prototxt"), ("bench reduce -m 8 -json made", "numba"),
        ("test -model net.prototxt -weights none", "net.prototxt"),
        ("simulate", "scaffe.cli.main"), ("simulate", "scaffe.errors")))])
def test_an_interrupted_command_ends_by_the_signal_without_a_word(tmp_path, line, at):
    """A shell says 130, and a script's loop ends with it, too."""
    assert interrupted(tmp_path, *line.split(), at=at) == (-signal.SIGINT, [])


def test_one_that_computes_ends_so_too(tmp_path):
    (tmp_path / "net.prototxt").write_text(FEATURES)
    process = subprocess.Popen(command("time", "-model", "net.prototxt", "-iterations", "1000000000"), cwd=tmp_path,
                               stderr=subprocess.PIPE, text=True, preexec_fn=_hear)
    try:
        said = []
        _read_until(process, "Iteration: 3 ", said)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(100) == -signal.SIGINT
        assert all(line.startswith("I") for line in rest.splitlines()[:-1])
        assert "Traceback" not in rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.mpi_job
@pytest.mark.thorough
def test_an_interrupted_rank_ends_the_others(tmp_path):
    """mpirun keeps Ctrl-C for itself: this one is sent to rank 1 alone, when it has begun to read its net."""
    (tmp_path / "sitecustomize.py").write_text(SENDER)
    (tmp_path / "net.prototxt").write_text(FEATURES)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "SIGNAL_AT": "net.prototxt=SIGINT"}
    done = subprocess.run(command("time", "-model", "net.prototxt", n_ranks=2), cwd=tmp_path, env=environment,
                          capture_output=True, text=True, timeout=100, preexec_fn=_hear)
    assert done.returncode == 130
    assert "rank 1: ended by Ctrl-C (SIGINT)" in done.stderr
    assert "Traceback" not in done.stderr
