"""Runs a kernel on several threads, each on a part of the elements or rows, if there are enough of them."""

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
from scaffe.layers.kernels.cpu.arrays import as_bits
from scaffe.layers.kernels.cpu.onednn.library import OPENMP, library
from scaffe.layers.kernels.cpu.threads.thread_pool import ThreadPool, Work, thread_pool
from scaffe.layers.kernels.extents import expect_shape

LEAST_ELEMS = 1 << 16  # of a part: handing one to a thread takes about as long as this many elements
LINE = 16  # float32 of a cache line

_pools: list[ThreadPool] = []  # at most one
_here = threading.local()


def set_parts(number: int) -> None:
    """Run kernels on ``number`` threads from now on, including the caller's."""
    _pools[:] = [thread_pool(number)] if number > 1 else []


def n_threads() -> int:
    """The number of threads on which kernels run that this thread calls."""
    return _pools[0].n_threads if _pools and not hasattr(_here, "is_alone") else 1


def native_threads() -> tuple[int, int] | None:
    """The address of OpenMP's function that begins a parallel region, and the number of threads; None without it."""
    return _pools[0].native if _pools else None


def compute_alone() -> None:
    """Run the kernels that this thread calls on this thread alone from now on."""
    _here.is_alone = True


def in_parts(kernel: Callable[..., Any], arrays: tuple[np.ndarray, ...], *rest: Any) -> None:
    """Call ``kernel(*arrays, *rest)``, split along the first axis of arrays of equal shape (else LayerError) over
    threads. The kernel releases the interpreter's lock, and treats the elements (or rows) independently of one another;
    it gets bfloat16 arrays as their bits."""
    expect_shape(arrays[0].shape, *arrays[1:])
    parts, length = [as_bits(a) for a in arrays], len(arrays[0])
    n_parts = count_parts(length, arrays[0].size // LEAST_ELEMS)
    if n_parts > 1 and (region := _region(kernel)):
        region.run_sliced(native_threads(), kernel, n_parts, parts, *rest)
    else:
        _in_turns(length, lambda start, stop: kernel(*(a[start:stop] for a in parts), *rest), n_parts)


def in_units(kernel: Callable[..., Any], unit: int, n: int, most: int | None, *args: Any) -> None:
    """Call ``kernel(start, stop, *args)`` for ranges of whole units of ``unit`` elements that make up [0, n), several
    at once on threads; at most ``most`` ranges, None: as many as threads. The kernel releases the interpreter's
    lock."""
    length = -(-n // unit)
    n_parts = count_parts(length, most)
    if n_parts > 1 and (region := _region(kernel)):
        region.run(native_threads(), kernel, n_parts, length, unit, n, *args)
    else:
        _in_turns(length, lambda start, stop: kernel(unit * start, min(unit * stop, n), *args), n_parts)


def in_ranges(length: int, run: Callable[[int, int], Any], most: int | None = None) -> None:
    """Call ``run(start, stop)``, which releases the interpreter's lock, for ranges that make up [0, length), as
    ``in_units`` does for compiled kernels: here Python hands the ranges to threads, which takes as long as many
    kernels."""
    _in_turns(length, run, count_parts(length, most))


def count_parts(length: int, most: int | None) -> int:
    """The number of parts of a length: as many as threads, but at most ``most``, and at least 1."""
    n = n_threads()
    return max(min(n, length, n if most is None else most), 1)


def _region(kernel: Callable[..., Any]) -> ModuleType | None:
    """The module that runs a kernel on native threads without the interpreter; None if it cannot."""
    if native_threads() is None:
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

    _pools[0].run(take)


class WorkerThreads:
    """A pool of threads, the caller's alone if there is one; see ``scaffe.layers.kernels.plans.Workers``."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._make_pool()
        forking.in_child(self._make_pool)

    def _make_pool(self) -> None:
        n = self.n_threads
        self._pool = ThreadPoolExecutor(n, "worker", _begin) if n > 1 else None

    def run(self, work: Work) -> None:
        if self._pool is None:
            work()
            return
        running = [self._pool.submit(work) for _ in range(self.n_threads)]
        wait(running)
        for each in running:
            each.result()


def _begin() -> None:
    """Let this thread's kernels, ours and oneDNN's, use no other thread."""
    compute_alone()
    if library() is not None:
        ctypes.CDLL(OPENMP).omp_set_num_threads(1)


@compiled(inline="always")
def part_from(start: int, n_parts: int, length: int) -> int:
    """The index of the part that begins at unit ``start``, if ``in_units`` divides ``length`` units into n_parts."""
    return -(-start * n_parts // length)
