"""How many threads a rank computes with, unless a command line or a script says so."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from scaffe.environment import THREADS

OPENMP = "OMP_NUM_THREADS"
HELP = "compute threads a rank; 0: by environment, else its cores"
"""Of the flag ``-threads``."""


def n_threads(n_ranks: int = 1, environment: Mapping[str, str] = os.environ) -> int:
    """The number that SCAFFE_THREADS gives, else OMP_NUM_THREADS, else that of the cores to which the launcher has
    bound this rank, else its share of all cores.

    Args:
        n_ranks: the ranks on this node, among which its cores are shared out.
        environment: the variables to look at.

    Raises:
        UserError: SCAFFE_THREADS is no number of threads.
    """
    mine = len(os.sched_getaffinity(0))
    is_bound = mine < (os.cpu_count() or 1)
    return THREADS.get(environment) or _of_openmp(environment) or (mine if is_bound else max(mine // n_ranks, 1))


def _of_openmp(environment: Mapping[str, str]) -> int:
    """The number for the outermost level, as in "8,2"; 0 where there is none that OpenMP would take either."""
    found = re.fullmatch(r"\s*([0-9]{1,4})\s*(,.*)?", environment.get(OPENMP, ""))
    return int(found[1]) if found else 0
