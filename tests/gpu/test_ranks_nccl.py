"""Part two of `make test-gpu-ranks`: NCCL with several ranks on one card, which NCCL 2.31 and later allow where they
are asked to: all collectives, the strategies over it, and a rank that is killed."""

import re

import numpy as np
import pytest

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.nccl import SHARED_GPU
from scaffe.collectives.errors import CommError
from tests.collectives.cuda.test_nccl_start import DEATHS, check_death
from tests.collectives.test_mpi import HERE, job
from tests.scaffe.conftest import databases  # noqa: F401 - a fixture
from tests.scaffe.device.test_strategies import check
from tests.scaffe.training.fault_tolerance.runs import make, train, weights

NEEDED = 23100  # NCCL's version


def missing():
    """Why this cannot run here; empty where it can."""
    try:
        version = device.load_nccl().get_version()
    except CommError as error:
        return str(error)
    return f"NCCL {version} refuses two ranks on one GPU; {NEEDED} is needed" if version < NEEDED else ""


WHY = missing()
pytestmark = [pytest.mark.mpi_job, pytest.mark.skipif(bool(WHY), reason=WHY)]
SHARED = {SHARED_GPU: "1"}


@pytest.mark.parametrize(("n_ranks", "ranks_per_node"), [(2, 0), (3, 0), (4, 2)])
def test_all_collectives(n_ranks, ranks_per_node):
    result = job(n_ranks, ["-m", "pytest", "--with-mpi", "-x", "-q", "--color=no", "-k", "nccl",
                           str(HERE / "device" / "test_collectives.py")], timeout=60,
                 SCAFFE_RANKS_PER_NODE=str(ranks_per_node or ""), SCAFFE_TEST_GPU="1", **SHARED)
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    assert " passed" in result.stdout


@pytest.mark.parametrize("when", list(DEATHS))
def test_a_rank_that_is_killed_is_lost_to_the_others(when):
    check_death(when, **SHARED)


def test_strategies():
    check(["nccl"], SCAFFE_TEST_GPU="1", **SHARED)


def test_the_others_go_on_without_a_rank_that_is_killed(tmp_path, databases):  # noqa: F811
    result = train(make(tmp_path, databases, "2:5"), "-gpu", "all", "-strategy", "sc-rs", "-reduce", "nccl",
                   "-on_rank_loss", "shrink", n_ranks=3, **SHARED)
    assert result.returncode == 0, result.stderr
    assert re.findall(r"Lost in iteration \d+: rank .* of 3 ranks; 2 go on", result.stderr), result.stderr
    assert np.isfinite(weights(tmp_path)).all()
