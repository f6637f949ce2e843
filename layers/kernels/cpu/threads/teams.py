"""Threads on which a kernel's parts run: OpenMP's, on which oneDNN computes too, or else a pool of Python's."""

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


class Team(Protocol):
    """Some threads, the caller's among them.

    Attributes:
        n_threads: how many.
        native: the address of OpenMP's function that calls another on each thread, and how many these are; None where
            only Python can call them.
    """

    n_threads: int
    native: tuple[int, int] | None

    def run(self, work: Work) -> None:
        """Call ``work()`` on each thread; back when all are done. What it raises on any thread is raised here."""


def team(n_threads: int) -> Team:
    """OpenMP's threads where oneDNN brings them: kernels that take turns with its own then find them awake."""
    return OpenmpTeam(n_threads) if library() is not None else PoolTeam(n_threads)


class OpenmpTeam:
    """The threads of GNU's OpenMP."""

    def __init__(self, n_threads: int) -> None:
        from scaffe import signal_mask  # numba: only where there are threads

        self.n_threads = n_threads
        self.native: tuple[int, int] | None = (begin_region(), n_threads)
        self._parallel = signal_mask.caller(ctypes.CDLL(OPENMP).GOMP_parallel)

    def run(self, work: Work) -> None:
        """As said of teams."""
        key, errors = next(_KEYS), list[BaseException]()

        def kept() -> None:  # nothing may be raised through OpenMP
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


class PoolTeam:
    """A pool of Python's threads."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.native: tuple[int, int] | None = None
        self._make_pool()
        forking.in_child(self._make_pool)

    def _make_pool(self) -> None:
        self._pool = ThreadPoolExecutor(self.n_threads - 1, "kernel")

    def run(self, work: Work) -> None:
        """As said of teams."""
        running = [self._pool.submit(work) for _ in range(self.n_threads - 1)]
        try:
            work()
        finally:
            wait(running)
        for future in running:
            future.result()


@cache
def begin_region() -> int:
    """The address of OpenMP's function that calls another on each thread of a team."""
    return ctypes.cast(ctypes.CDLL(OPENMP).GOMP_parallel, ctypes.c_void_p).value or 0


def _enter(key: int) -> None:
    """What each of OpenMP's threads calls."""
    _WORK[key]()


_KEYS = count()
_WORK: dict[int, Work] = {}  # what teams run now, by the number that OpenMP passes on
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(_enter)
_ENTRY = ctypes.cast(_CALLBACK, ctypes.c_void_p).value
