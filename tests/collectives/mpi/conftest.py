"""These tests run on every rank of an MPI job: `mpirun -np 4 python -m pytest tests/collectives/mpi`.

Without a launcher nothing here is collected; tests/collectives/test_mpi.py starts the jobs.
"""

import sys

import pytest

from collectives.launch import launched

collect_ignore_glob = [] if launched() else ["test_*.py"]


@pytest.fixture(scope="session")
def communicator():
    """One communicator for the whole job; a peer that is missing for 30 s ends it."""
    from collectives import Communicator

    made = Communicator.world(deadline=30)
    made.install_excepthook()
    return made


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure on one rank ends the job on all of them: the others would wait for it."""
    outcome = yield
    report = outcome.get_result()
    communicator = item.funcargs.get("communicator") if hasattr(item, "funcargs") else None
    if report.failed and communicator is not None and communicator.n_ranks > 1:
        sys.__stderr__.write(f"rank {communicator.rank}: {item.nodeid}\n{report.longreprtext}\n")
        communicator.abort(1)
