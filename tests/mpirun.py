"""How tests start MPI jobs: a test that starts one is marked ``pytest.mark.mpi_job``; these run one after the other."""

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


def mpirun(n_ranks: int) -> list[str]:
    """The first words of a job's command line.

    Raises:
        RuntimeError: pytest runs tests in several processes: two jobs might run at once.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        raise RuntimeError(f"{os.environ['PYTEST_CURRENT_TEST']} starts an MPI job: expected pytest.mark.{MARK} there, "
                           f"and pytest -m {MARK} without -n")
    return [MPIRUN, "-np", str(n_ranks)]
