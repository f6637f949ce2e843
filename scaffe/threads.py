"""Threads of ours, which begin on the process's GPU, and how many threads a rank computes with.

Each begins on the GPU that the process computes on, even if it calls no CUDA itself: Python may free another thread's
objects in any thread, such as an event of CUDA's, and a thread without a device would make a context on GPU 0 for that.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress

from scaffe.environment import THREADS
from scaffe.errors import UserError

_begin: list[Callable[[], None]] = []


def begin_with(action: Callable[[], None]) -> None:
    """Set the function that threads of ours call first from now on."""
    _begin[:] = [action]


class Thread(threading.Thread):
    """A thread that the process does not wait for when it ends; errors and timelines show its name."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)

    def start(self) -> None:
        """Raises UserError where the system has no room for one more."""
        try:
            super().start()
        except RuntimeError as error:
            if self.ident is not None:  # it has been started before
                raise
            raise UserError(f"thread {self.name!r} cannot start: expected room for its stack and one thread more, "
                            "reached a limit of the system (ulimit -v, ulimit -u)") from error

    def run(self) -> None:
        for action in _begin:
            with suppress(Exception):  # a GPU that is no longer there: the first call that needs it says so
                action()
        super().run()


OPENMP = "OMP_NUM_THREADS"
HELP = "compute threads a rank; 0: by environment, else its cores"
"""Of the flag ``-threads``."""


def n_threads(n_ranks: int = 1) -> int:
    """The number that SCAFFE_THREADS gives, else OMP_NUM_THREADS, else that of the cores to which the launcher has
    bound this rank, else its share of all cores, which the ``n_ranks`` on this node share.

    Raises:
        UserError: SCAFFE_THREADS is no number of threads.
    """
    mine = len(os.sched_getaffinity(0))
    is_bound = mine < (os.cpu_count() or 1)
    return THREADS.get() or _of_openmp() or (mine if is_bound else max(mine // n_ranks, 1))


def _of_openmp() -> int:
    """The number for the outermost level, as in "8,2"; 0 where there is none that OpenMP would take either."""
    found = re.fullmatch(r"\s*([0-9]{1,4})\s*(,.*)?", os.environ.get(OPENMP, ""))
    return int(found[1]) if found else 0
