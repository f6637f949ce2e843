"""Threads of ours, which begin on the process's GPU, and how many threads a rank computes with.

Each begins on the GPU that the process computes on, even if it calls no CUDA itself: Python may free another thread's
objects in any thread, such as an event of CUDA's, and a thread without a device would make a context on GPU 0 for that.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from scaffe import control_groups
from scaffe.environment import THREADS
from scaffe.errors import UserError
from scaffe.flags import MOST_THREADS
from scaffe.log import warning

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


OPENMP, SLURM = "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"
HELP = "a rank's compute threads; 0: by environment, else its cores"
"""Of the flag ``-threads``."""
ORDER = ("-threads or caffe.set_threads", THREADS.name, OPENMP, SLURM, "the cores")
"""Who says how many threads a rank computes with; the first that says it counts."""
EXPECTED = {OPENMP: f"whole numbers from 1 to {MOST_THREADS:,}, with commas between, of which the first counts",
            SLURM: f"a whole number from 1 to {MOST_THREADS:,}"}
_said: set[str] = set()  # lines about values that cannot be


def n_threads(n_ranks: int = 1, environment: Mapping[str, str] = os.environ) -> int:
    """How many threads a rank computes with where no flag and no call says it.

    Args:
        n_ranks: the ranks on this node, among which its cores are shared out.
        environment: the variables to look at.

    Raises:
        UserError: SCAFFE_THREADS is no number of threads.
    """
    for name in EXPECTED:
        line = wrong(name, environment)
        if line and line not in _said:
            _said.add(line)
            warning(line)
    return chosen(n_ranks, environment)[0]


def chosen(n_ranks: int = 1, environment: Mapping[str, str] = os.environ) -> tuple[int, str]:
    """That number, and which of ``ORDER`` says it.

    Args:
        n_ranks: the ranks on this node.
        environment: the variables to look at.

    Raises:
        UserError: SCAFFE_THREADS is no number of threads.
    """
    for name, number in ((THREADS.name, THREADS.get(environment)), (OPENMP, _first_number(OPENMP, environment))):
        if number:
            return number, name
    return _cores(n_ranks, environment)


def most_readers(n_ranks_of_node: int, on_gpu: bool) -> int:
    """How many reader threads a rank may have at the most: as many as it has cores, less one for the trainer where the
    net computes on a GPU; at least 1.

    Args:
        n_ranks_of_node: the ranks on this node, among which its cores are shared out.
        on_gpu: whether the net computes on a GPU.
    """
    return max(_cores(n_ranks_of_node, os.environ)[0] - on_gpu, 1)


def wrong(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """The line about a variable, OPENMP or SLURM, whose value cannot be; empty if it can, or if there is none.

    Args:
        name: of the variable.
        environment: the variables to look at.
    """
    text = environment.get(name, "")
    if not text.strip() or _first_number(name, environment):
        return ""
    return f"{name}={text}: expected {EXPECTED[name]}; it is passed over"


@contextmanager
def openmp_begins_with(n_threads: int) -> Iterator[None]:
    """While OpenMP is loaded: what it gives to threads, such as a user's own, for which nobody sets a number."""
    given = os.environ.get(OPENMP)
    os.environ[OPENMP] = str(n_threads)
    try:
        yield
    finally:
        if given is None:
            del os.environ[OPENMP]
        else:
            os.environ[OPENMP] = given


def _cores(n_ranks: int, environment: Mapping[str, str]) -> tuple[int, str]:
    """How many cores a rank has, and who says it: SLURM, or else Linux.

    Those to which the launcher has bound it, or its share of those that its node's ranks may use; and no more than its
    share of the time that its container may take.
    """
    mine = len(os.sched_getaffinity(0))
    is_bound = mine < min(os.cpu_count() or 1, control_groups.n_cores() or MOST_THREADS)
    share, quota = mine if is_bound else mine // n_ranks, control_groups.cpu_quota()
    share = max(share if quota is None else min(share, quota // n_ranks), 1)
    granted = _first_number(SLURM, environment)
    return (granted, SLURM) if 0 < granted <= share else (share, ORDER[-1])


def _first_number(name: str, environment: Mapping[str, str]) -> int:
    """The number in a variable, of OpenMP's the one for the outermost level, as in "8,2"; 0 where there is none."""
    rest = r"(,\s*\+?[0-9]+\s*)*" if name == OPENMP else ""
    found = re.fullmatch(rf"\s*\+?([0-9]{{1,9}})\s*{rest}", environment.get(name, ""), re.ASCII)
    return int(found[1]) if found and int(found[1]) <= MOST_THREADS else 0
