"""Threads that compute beside one another, each by itself on one core."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor, wait

from scaffe import forking
from scaffe.layers.kernels.cpu.onednn.library import OPENMP, library
from scaffe.layers.kernels.cpu.parts import compute_alone
from scaffe.layers.kernels.cpu.teams import Work


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
