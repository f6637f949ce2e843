"""What every test process needs: the launcher's settings from mpi.env, as the Makefile sets them."""

import gc
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import mpirun

for line in (Path(__file__).resolve().parent.parent / "mpi.env").read_text().splitlines():
    if line and not line.startswith("#"):
        name, value = line.split("=", 1)
        os.environ.setdefault(name, value)

# Most jobs here have more ranks than cores. Open MPI's waiting ranks then sleep for a moment instead of asking for
# their core again at once: other ranks come to work sooner, though a message takes some 50 us longer.
os.environ.setdefault("OMPI_MCA_threads_pthreads_yield_strategy", "nanosleep")

# The hundreds of processes that tests start would each compile all of Python's sources: a quarter of a short run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without an mpirun, tests marked ``mpi_job`` are skipped."""
    for item in items:
        if item.get_closest_marker(mpirun.MARK) and not mpirun.is_there():
            item.add_marker(pytest.mark.skip(reason=f"no {mpirun.MPIRUN}"))


def pytest_collection_finish() -> None:
    """Modules and thousands of collected tests stay to the end: no need for the garbage collector to look at them."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that is not marked ``mpi_job`` cannot start an MPI job, nor can its fixtures.

    One that is has a folder of its own for its launchers. One that was killed leaves a file that has its process
    number, and the next with this number, of which Linux has 32768, would end with "The PMIx server's listener thread
    failed to start" (openpmix/openpmix#4022).
    """
    mpirun.MpiJobs.allowed = item.get_closest_marker(mpirun.MARK) is not None
    if mpirun.MpiJobs.allowed:
        os.environ["PRTE_MCA_prte_tmpdir_base"] = tempfile.mkdtemp(dir=_launchers)  # noqa: SIM112


_launchers = tempfile.mkdtemp(prefix="launchers-")


def pytest_sessionfinish() -> None:
    """What launchers have left goes."""
    shutil.rmtree(_launchers, ignore_errors=True)


@pytest.fixture
def new_threads() -> Callable[[str], list[str]]:
    """Gives the names, with a prefix, of threads that are alive, without those of earlier tests, which may yet end."""
    earlier = set(threading.enumerate())
    return lambda prefix: [thread.name for thread in threading.enumerate()
                           if thread.name.startswith(prefix) and thread not in earlier]


def in_fork(function: Callable[[], object]) -> object:
    """What a function gives in a forked child, which a signal ends after 60 s: what is tested may wait for ever."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            os.write(write, pickle.dumps(function()))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert said, "the child said nothing: it raised something or hung"
    return pickle.loads(said)


@pytest.fixture
def forked() -> Callable[[Callable[[], object]], object]:
    """See ``in_fork``."""
    return in_fork


@pytest.fixture(autouse=True)
def excepthooks():
    """A rank's hooks, which end the process on any thread's error, end with the test that has set them."""
    from scaffe.collectives.launch import launched

    before = sys.excepthook, threading.excepthook
    yield
    if not launched():
        sys.excepthook, threading.excepthook = before


@pytest.fixture
def hasty():
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
