"""What every test process needs: the launcher's settings from mpi.env, as the Makefile sets them."""

import os
from pathlib import Path

import pytest

from tests import mpirun

for line in (Path(__file__).resolve().parent.parent / "mpi.env").read_text().splitlines():
    if line and not line.startswith("#"):
        name, value = line.split("=", 1)
        os.environ.setdefault(name, value)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without an mpirun, tests marked ``mpi_job`` are skipped."""
    for item in items:
        if item.get_closest_marker(mpirun.MARK) and not mpirun.is_there():
            item.add_marker(pytest.mark.skip(reason=f"no {mpirun.MPIRUN}"))
