"""Running a kernel on several threads, each on a part of the elements or rows, if there are enough of them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from scaffe import forking
from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.arrays import words
from scaffe.layers.kernels.cpu.onednn.library import OPENMP, library
from scaffe.layers.kernels.cpu.threads.teams import Team, Work, team
from scaffe.layers.kernels.extents import expect_shape

LEAST_ELEMS = 1 << 16  # of a part: handing one over costs about as much as this many elements
LINE = 16  # columns of float32 that lie in one line of the cache

_teams: list[Team] = []  # at most one
_here = threading.local()


def set_parts(number: int) -> None:
    """Run kernels on so many threads from now on, including the caller's."""
    _teams[:] = [team(number)] if number > 1 else []


def n_threads() -> int:
    """How many threads kernels that this thread calls run on."""
    return _teams[0].n_threads if _teams and not hasattr(_here, "is_alone") else 1


def native_team() -> tuple[int, int] | None:
    """OpenMP's function that begins a region, and how many threads take part; None where there is none of ours."""
    return _teams[0].native if _teams else None


def compute_alone() -> None:
    """From now on, kernels that this thread calls run on no other thread."""
    _here.is_alone = True


def in_parts(kernel: Callable[..., Any], arrays: tuple[np.ndarray, ...], *rest: Any) -> None:
    """Call ``kernel(*arrays, *rest)``, split along the arrays' first axis over several threads.

    Args:
        kernel: releases the interpreter's lock; treats the elements (or rows) independently of one another. It gets
            arrays of bfloat16 as their words.
        arrays: of equal shape.
        rest: further arguments, the same in every call.

    Raises:
        LayerError: arrays of different shapes.
    """
    expect_shape(arrays[0].shape, *arrays[1:])
    parts, length = [words(a) for a in arrays], len(arrays[0])
    n_parts = count_parts(length, arrays[0].size // LEAST_ELEMS)
    if n_parts > 1 and (region := _region(kernel)):
        region.run_sliced(native_team(), kernel, n_parts, parts, *rest)
    else:
        _in_turns(length, lambda start, stop: kernel(*(a[start:stop] for a in parts), *rest), n_parts)


def in_units(kernel: Callable[..., Any], unit: int, n: int, most: int | None, *args: Any) -> None:
    """Call ``kernel(start, stop, *args)`` for ranges of whole units that make up [0, n), several at once on threads.

    Args:
        kernel: releases the interpreter's lock.
        unit: where ranges start and end, but for the last; in elements.
        n: where the last range ends.
        most: how many ranges there may be; no fewer than one is made. None: as many as threads.
        args: further arguments, the same in every call.
    """
    length = -(-n // unit)
    n_parts = count_parts(length, most)
    if n_parts > 1 and (region := _region(kernel)):
        region.run(native_team(), kernel, n_parts, length, unit, n, *args)
    else:
        _in_turns(length, lambda start, stop: kernel(unit * start, min(unit * stop, n), *args), n_parts)


def in_ranges(length: int, run: Callable[[int, int], Any], most: int | None = None) -> None:
    """Call ``run(start, stop)`` for ranges that make up [0, length), several at once on threads.

    Threads come by Python, which costs as much as many kernels: ``in_units`` is for compiled ones.

    Args:
        length: where the last range ends.
        run: releases the interpreter's lock.
        most: how many ranges there may be; no fewer than one is made. None: as many as threads.
    """
    _in_turns(length, run, count_parts(length, most))


def count_parts(length: int, most: int | None) -> int:
    """How many parts a length is split into: as many as threads, but at most so many of them."""
    n = n_threads()
    return max(min(n, length, n if most is None else most), 1)


def _region(kernel: Callable[..., Any]) -> ModuleType | None:
    """What runs a kernel on the team's threads without the interpreter; None where it cannot be."""
    if native_team() is None:
        return None
    from scaffe.layers.kernels.cpu.threads import parallel  # numba: only where there are threads

    return parallel if parallel.can_be_parallel(kernel) else None


def _in_turns(length: int, run: Callable[[int, int], Any], n_parts: int) -> None:
    if n_parts <= 1:
        run(0, length)
        return
    cuts = [length * i // n_parts for i in range(n_parts + 1)]
    left = iter(list(pairwise(cuts)))  # of a list: threads may share it

    def take() -> None:
        for start, stop in left:
            run(start, stop)

    _teams[0].run(take)


class WorkerThreads:
    """So many threads; of one, the caller's. See ``scaffe.layers.kernels.plans.Workers``."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._make_pool()
        forking.in_child(self._make_pool)

    def _make_pool(self) -> None:
        n = self.n_threads
        self._pool = ThreadPoolExecutor(n, "worker", _begin) if n > 1 else None

    def run(self, work: Work) -> None:
        """See the interface."""
        if self._pool is None:
            work()
            return
        running = [self._pool.submit(work) for _ in range(self.n_threads)]
        wait(running)
        for each in running:
            each.result()


def _begin() -> None:
    """Let this thread's kernels, ours and oneDNN's, use no thread besides."""
    compute_alone()
    if library() is not None:
        ctypes.CDLL(OPENMP).omp_set_num_threads(1)


@compiled(inline="always")
def part_from(start: int, n_parts: int, length: int) -> int:
    """The number of the part that starts there, of as many as ``in_units`` makes of a length."""
    return -(-start * n_parts // length)
