"""The command lines of jobs that benchmarks start, which find this checkout's scaffe wherever they run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)
sys.path[:0] = [] if ROOT in sys.path else [ROOT]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))

MPIRUN = os.environ.get("MPIRUN") or str(Path(sys.executable).parent / "mpirun")


def python(*arguments: Any) -> list[str]:
    """A command of this interpreter."""
    return [sys.executable, *map(str, arguments)]


def mpirun(n_ranks: int, *arguments: Any) -> list[str]:
    """The same under mpirun."""
    return [MPIRUN, "-np", str(n_ranks), *python(*arguments)]
