"""How much of a non-blocking collective hides behind compute, measured as osu_ireduce does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from machine_code import compiled

from ..communicator import Communicator
from ..request import Request
from .measure import time_call


@compiled
def _work(values, n_rounds):
    """Arithmetic that stays in registers and the first-level cache."""
    for _ in range(n_rounds):
        for i in range(values.size):
            values[i] = values[i] * np.float32(0.999) + np.float32(0.001)


class Compute:
    """A fixed amount of work on this rank's core: counted in rounds, so that a stolen core shows as time."""

    def __init__(self, communicator: Communicator, seconds: float) -> None:
        """As much work as takes `seconds` where all ranks work and nothing else does; all ranks call it."""
        self._values = np.ones(1024, np.float32)
        self._n_rounds = 20_000
        for _ in range(2):
            took = float(np.median(time_call(communicator, self.run, 1, 3)))
            self._n_rounds = max(int(self._n_rounds * seconds / took), 1)

    def run(self) -> None:
        """Do the work."""
        _work(self._values, self._n_rounds)


def measure_overlap(communicator: Communicator, start: Callable[[], Request | None], n_warm: int,
                    n_timed: int) -> dict[str, float]:
    """Seconds: the collective alone (`pure`), as much compute alone (`compute`), both together (`both`); and the
    percentage hidden, 100 (1 - (both - compute) / pure), between 0 and 100.

    The three take turns; all figures are medians over the rounds, so that a change in the machine's speed, which meets
    all three of a round, does not pass for overlap or for the lack of it.
    """
    compute = Compute(communicator, float(np.median(time_call(communicator, lambda: _wait(start()), n_warm, 3))))

    def together() -> None:
        request = start()
        compute.run()
        _wait(request)

    calls = (lambda: _wait(start()), compute.run, together)
    rounds = np.array([[time_call(communicator, call, 0, 1)[0] for call in calls] for _ in range(n_timed)])
    hidden = float(np.median(100 * (1 - (rounds[:, 2] - rounds[:, 1]) / rounds[:, 0])))
    alone, computing, both = map(float, np.median(rounds, axis=0))
    return {"pure": alone, "compute": computing, "both": both, "overlap": min(max(hidden, 0.0), 100.0)}


def _wait(request: Request | None) -> None:
    if request is not None:
        request.wait()
