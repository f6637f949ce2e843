"""A rank killed in the middle of computing or of communicating ends the job within 10 s, and mpirun names it."""

import os
import subprocess

import pytest

from scaffe.training.strategies import strategies
from tests.scaffe.runs import ROOT, command
from tests.slurm.cluster import wait_until
from tests.slurm.runs import write

BAR_SECONDS = 100  # promised: 10; measured: 1; the other ranks would sleep for 600
pytestmark = pytest.mark.mpi_job
CASES = [(0, "computing"), (1, "communicating")]


@pytest.mark.parametrize("strategy", [
    name if name in ("sc-obr", "ssp") else pytest.param(name, marks=pytest.mark.thorough)
    for name in strategies.names() if name != "sandblaster"])  # no SGD's
@pytest.mark.parametrize(("victim", "where"), CASES)
def test_a_killed_rank_ends_the_job(tmp_path, databases, strategy, victim, where):
    write(tmp_path, databases, display=1, max_iter=100000, layer="Mortal", param=f"{victim} {where}")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests/slurm")}
    with (tmp_path / "said").open("wb") as log:
        job = subprocess.Popen(command("train", "-solver", "solver.prototxt", "-threads", "1", "-strategy", strategy,
                                       n_ranks=2), cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            wait_until((tmp_path / "died").exists, 150, "the rank's death")
            assert job.wait(timeout=BAR_SECONDS) != 0
        finally:
            job.kill()
    said = (tmp_path / "said").read_text(errors="replace")
    assert f"process rank {victim} " in said, said
