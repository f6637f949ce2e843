"""Signals that come while a run starts have the effect that they have later."""

import os
import re
import subprocess

import pytest

from tests.scaffe.runs import command, write_solver
from tests.scaffe.training.test_signals import NET

# Python imports a sitecustomize first of all: it sends the process a signal when a module is first imported.
SENDER = """
import os, signal, sys
wanted = [word.split("=") for word in os.environ["SIGNAL_AT"].split()]
def at_import(event, arguments):
    for place in list(wanted):
        if event == "import" and arguments[0] == place[0] and os.environ.get("OMPI_COMM_WORLD_RANK", "1") == "1":
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
    environment = os.environ | {"PYTHONPATH": str(folder), "SIGNAL_AT": signal_at}
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


@pytest.mark.parametrize("number", [pytest.param("SIGUSR1", marks=pytest.mark.thorough), "SIGTERM", "SIGHUP"])
def test_one_that_comes_when_all_is_done_leaves_a_success(tmp_path, monkeypatch, number):
    """As where a launcher hands a signal to one rank later than to the one that stopped all for it."""
    monkeypatch.setenv("SIGNAL_LATE", number)
    done = train(tmp_path, 1, 2, "")
    assert done.returncode == 0, done.stderr
    assert "Optimization Done" in done.stderr
