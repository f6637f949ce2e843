"""Part one of `make test-gpu-ranks`: ranks that share a card, but say that each has its own. So every rank's kernel
sums a part of all ranks' windows, as on as many cards."""

import pytest

from scaffe.collectives.cuda import device
from tests.collectives.test_mpi import HERE, job

pytestmark = [pytest.mark.mpi_job, pytest.mark.skipif(bool(device.missing()), reason=device.missing())]


@pytest.mark.parametrize(("n_ranks", "ranks_per_node"), [(2, 0), (3, 0), (4, 0), (5, 2)])
def test_every_rank_sums_a_part_of_all_windows(n_ranks, ranks_per_node):
    files = [str(HERE / "device" / file) for file in ("test_collectives.py", "test_order.py")]
    result = job(n_ranks, ["-m", "pytest", "--with-mpi", "-x", "-q", "--color=no", "-k", "cards", *files], timeout=80,
                 SCAFFE_RANKS_PER_NODE=str(ranks_per_node or ""), SCAFFE_TEST_GPU="1")
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
