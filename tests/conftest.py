"""What every test process needs: the launcher's settings from mpi.env, as the Makefile sets them."""

import gc
import os
import sys
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
    """A test that is not marked ``mpi_job`` cannot start an MPI job, nor can its fixtures."""
    mpirun.MpiJobs.allowed = item.get_closest_marker(mpirun.MARK) is not None
