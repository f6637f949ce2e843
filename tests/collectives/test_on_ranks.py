"""The tests in mpi/ under a launcher, one job a rank count; MPIRUN and MPI_PYTHON choose another MPI (test_mpi.py)."""

import pytest

from tests.collectives.test_mpi import HERE, job


@pytest.mark.mpi_job
@pytest.mark.parametrize(("n_ranks", "ranks_per_node"), [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (8, 0), (5, 2)])
def test_collectives_on(n_ranks, ranks_per_node):
    result = job(n_ranks, ["-m", "pytest", "--with-mpi", "-x", "-q", "--color=no", str(HERE / "mpi")],
                 SCAFFE_RANKS_PER_NODE=str(ranks_per_node))
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
