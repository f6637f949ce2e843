"""Runs a kernel on several threads, each on a part of the elements or rows, if there are enough of them: on OpenMP's
threads, which oneDNN uses too, or else Python's."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count, pairwise
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from scaffe import forking
from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.arrays import as_bits
from scaffe.layers.kernels.cpu.onednn.library import OPENMP, library
from scaffe.layers.kernels.extents import expect_shape

Work = Callable[[], None]


class ThreadPool(Protocol):
    """Some threads, among them the caller's. ``native`` is the address of OpenMP's function that calls another on each
    thread, and their number; None if only Python can run work on the threads."""

    n_threads: int
    native: tuple[int, int] | None

    def run(self, work: Work) -> None:
        """Call ``work()`` on each thread and wait for all. Raises what it raises on any thread."""


def thread_pool(n_threads: int) -> ThreadPool:
    """OpenMP's threads if oneDNN is there, since they are then awake from its own kernels; else Python's."""
    return OpenmpThreads(n_threads) if library() is not None else PythonThreads(n_threads)


class OpenmpThreads:
    """The threads of GNU's OpenMP."""

    def __init__(self, n_threads: int) -> None:
        from scaffe import signal_mask  # numba: only where there are threads

        self.n_threads = n_threads
        begin = ctypes.CDLL(OPENMP).GOMP_parallel  # begins a parallel region
        self.native: tuple[int, int] | None = (ctypes.cast(begin, ctypes.c_void_p).value or 0, n_threads)
        self._parallel = signal_mask.caller(begin)

    def run(self, work: Work) -> None:
        key, errors = next(_KEYS), list[BaseException]()

        def kept() -> None:  # exceptions must not pass through OpenMP
            try:
                work()
            except BaseException as error:
                errors.append(error)

        _WORK[key] = kept
        try:
            self._parallel(_ENTRY, key, self.n_threads, 0)
        finally:
            del _WORK[key]
        if errors:
            raise errors[0]


class PythonThreads:
    """A pool of Python's threads."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.native: tuple[int, int] | None = None
        self._make_pool()
        forking.in_child(self._make_pool)

    def _make_pool(self) -> None:
        self._pool = ThreadPoolExecutor(self.n_threads - 1, "kernel")

    def run(self, work: Work) -> None:
        running = [self._pool.submit(work) for _ in range(self.n_threads - 1)]
        try:
            work()
        finally:
            wait(running)
        for future in running:
            future.result()


_KEYS = count()
_WORK: dict[int, Work] = {}  # the work that runs now, by the key that OpenMP passes on
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(lambda key: _WORK[key]())  # what each of OpenMP's threads calls
_ENTRY = ctypes.cast(_CALLBACK, ctypes.c_void_p).value


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
    _here.is_alone = True
    if library() is not None:
        ctypes.CDLL(OPENMP).omp_set_num_threads(1)


@compiled(inline="always")
def part_from(start: int, n_parts: int, length: int) -> int:
    """The index of the part that begins at unit ``start``, if ``in_units`` divides ``length`` units into n_parts."""
    return -(-start * n_parts // length)
