"""What every test process needs: the launcher's settings from mpi.env, as the Makefile sets them."""

import os
from pathlib import Path

for line in (Path(__file__).resolve().parent.parent / "mpi.env").read_text().splitlines():
    if line and not line.startswith("#"):
        name, value = line.split("=", 1)
        os.environ.setdefault(name, value)
