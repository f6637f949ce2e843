"""Only tests marked ``mpi_job`` start MPI jobs: others run beside any number of tests."""

from __future__ import annotations

import pytest

from tests.mpirun import mpirun


def test_an_unmarked_test_starts_no_job():
    with pytest.raises(RuntimeError, match=r"test_an_unmarked_test.* starts an MPI job: expected pytest.mark.mpi_job"):
        mpirun(2)


@pytest.mark.mpi_job
def test_a_marked_test_does():
    assert mpirun(3)[-2:] == ["-np", "3"]
