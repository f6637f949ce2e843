"""These tests run on every rank of an MPI job: `mpirun -np 4 python -m pytest tests/collectives/mpi`.

Without a launcher nothing here is collected; tests/collectives/test_mpi.py starts the jobs.
"""

import pytest

from scaffe.collectives.launch import launched
from tests.collectives.everywhere import last, pytest_runtest_makereport  # noqa: F401

collect_ignore_glob = [] if launched() else ["test_*.py"]


@pytest.fixture(scope="session")
def communicator():
    """One communicator for the whole job; a peer that is missing for 120 s ends it."""
    from scaffe.collectives import Communicator

    made = Communicator.world(deadline=120)
    made.install_excepthook()
    return made
