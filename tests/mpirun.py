"""How tests start MPI jobs: a test that starts one is marked ``pytest.mark.mpi_job``, so that few jobs run at once."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MPIRUN = os.environ.get("MPIRUN") or str(Path(sys.executable).parent / "mpirun")
if "/" in MPIRUN and not Path(MPIRUN).is_absolute():
    MPIRUN = str(ROOT / MPIRUN)
MARK = "mpi_job"


def is_there() -> bool:
    """Whether this machine has the launcher."""
    return shutil.which(MPIRUN) is not None


class MpiJobs:
    """Whether the test that runs now may start MPI jobs; outside pytest everybody may."""

    allowed = True


def mpirun(n_ranks: int) -> list[str]:
    """The first words of a job's command line.

    Raises:
        RuntimeError: the running test is not marked, so it may run beside any number of others.
    """
    if not MpiJobs.allowed:
        raise RuntimeError(f"{os.environ['PYTEST_CURRENT_TEST']} starts an MPI job: expected pytest.mark.{MARK} there")
    return [MPIRUN, "-np", str(n_ranks)]
