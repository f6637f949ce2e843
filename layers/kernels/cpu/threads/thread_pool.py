"""Thread pools on which a kernel's parts run: OpenMP's threads, which oneDNN uses too, or else Python's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import count
from typing import Protocol

from scaffe import forking
from scaffe.layers.kernels.cpu.onednn.library import OPENMP, library

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
        self.native: tuple[int, int] | None = (begin_region(), n_threads)
        self._parallel = signal_mask.caller(ctypes.CDLL(OPENMP).GOMP_parallel)

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


@cache
def begin_region() -> int:
    """The address of OpenMP's function that begins a parallel region."""
    return ctypes.cast(ctypes.CDLL(OPENMP).GOMP_parallel, ctypes.c_void_p).value or 0


def _enter(key: int) -> None:
    """Run the work with that key; each of OpenMP's threads calls this."""
    _WORK[key]()


_KEYS = count()
_WORK: dict[int, Work] = {}  # the work that runs now, by the key that OpenMP passes on
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(_enter)
_ENTRY = ctypes.cast(_CALLBACK, ctypes.c_void_p).value
