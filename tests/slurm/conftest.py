"""One SLURM for all tests here, and a small LMDB."""

import pytest

from tests.scaffe.conftest import databases  # noqa: F401
from tests.slurm.cluster import Cluster, missing


@pytest.fixture(scope="session")
def cluster():
    reason = missing()
    if reason:
        pytest.skip(f"no SLURM here: {reason}")
    with Cluster() as running:
        yield running
