"""How much of a non-blocking collective hides behind compute, measured as osu_ireduce does."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numba import njit

from ..communicator import Communicator
from ..request import Request
from .measure import time_call


@njit(cache=True, nogil=True)
def _work(values, n_rounds):
    """Arithmetic that stays in registers and the first-level cache."""
    for _ in range(n_rounds):
        for i in range(values.size):
            values[i] = values[i] * np.float32(0.999) + np.float32(0.001)


class Compute:
    """A calibrated amount of work on this rank's core: counted in rounds, so that a stolen core shows as time."""

    def __init__(self) -> None:
        self._values = np.ones(1024, np.float32)
        self._work(1)
        n_rounds, best = 20_000, float("inf")
        for _ in range(3):
            started = time.perf_counter()
            self._work(n_rounds)
            best = min(best, time.perf_counter() - started)
        self._rounds_per_second = n_rounds / best

    def run(self, seconds: float) -> None:
        """Work as much as fits in `seconds` on a free core."""
        self._work(max(int(seconds * self._rounds_per_second), 1))

    def _work(self, n_rounds: int) -> None:
        _work(self._values, n_rounds)


def measure_overlap(communicator: Communicator, start: Callable[[], Request | None], n_warm: int,
                    n_timed: int) -> dict[str, float]:
    """Seconds: the collective alone (`pure`), as much compute alone (`compute`), both together (`both`); and the
    percentage hidden, 100 (1 - (both - compute) / pure), between 0 and 100."""
    compute = Compute()
    pure = float(np.median(time_call(communicator, lambda: _wait(start()), n_warm, n_timed)))
    alone = float(np.median(time_call(communicator, lambda: compute.run(pure), 1, n_timed)))

    def together() -> None:
        request = start()
        compute.run(pure)
        _wait(request)

    both = float(np.median(time_call(communicator, together, 1, n_timed)))
    hidden = 100 * (1 - (both - alone) / pure)
    return {"pure": pure, "compute": alone, "both": both, "overlap": min(max(hidden, 0.0), 100.0)}


def _wait(request: Request | None) -> None:
    if request is not None:
        request.wait()
