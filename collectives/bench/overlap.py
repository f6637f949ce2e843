"""How much of a non-blocking collective hides behind compute, measured as osu_ireduce does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scaffe.collectives.bench.measure import time_call
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.request import Request
from scaffe.jit import compiled


@compiled
def _work(values, n_rounds):
    """Arithmetic that stays in registers and the first-level cache."""
    for _ in range(n_rounds):
        for i in range(values.size):
            values[i] = values[i] * np.float32(0.999) + np.float32(0.001)


class Compute:
    """A fixed amount of work on this rank's core: counted in rounds, so that a stolen core shows as time."""

    def __init__(self) -> None:
        """Work for some milliseconds; `last` sets how long."""
        self._values = np.ones(1024, np.float32)
        self._n_rounds = 20_000

    def last(self, seconds: float, took: float) -> None:
        """From now on work for `seconds`, when what is done now takes `took`; the same on all ranks."""
        self._n_rounds = max(int(self._n_rounds * seconds / took), 1)

    def run(self) -> None:
        """Do the work."""
        _work(self._values, self._n_rounds)


def measure_overlap(communicator: Communicator, start: Callable[[], Request | None], n_warm: int,
                    n_timed: int) -> dict[str, float]:
    """Seconds: the collective alone (`pure`), as much compute alone (`compute`), both together (`both`); and the
    percentage hidden, 100 (pure + compute - both) / min(pure, compute), between 0 and 100: osu_ireduce's where compute
    lasts as long as the collective. What is short of that would count as not hidden, so the work is fitted every round.

    The three take turns; all figures are medians over the rounds, so that a change in the machine's speed, which meets
    all three of a round, does not pass for overlap or for the lack of it.
    """
    compute = Compute()

    def together() -> None:
        request = start()
        compute.run()
        _wait(request)

    calls = (lambda: _wait(start()), compute.run, together)
    warm = [np.median(time_call(communicator, call, n_warm, 3)) for call in calls[:2]]
    rounds = np.empty((0, 3))
    for _ in range(n_timed):
        pure, took = rounds[-1, :2] if len(rounds) else warm
        compute.last(float(pure), float(took))
        rounds = np.vstack([rounds, [time_call(communicator, call, 0, 1)[0] for call in calls]])
    hidden = float(np.median(100 * (rounds[:, 0] + rounds[:, 1] - rounds[:, 2]) / rounds[:, :2].min(axis=1)))
    alone, computing, both = map(float, np.median(rounds, axis=0))
    return {"pure": alone, "compute": computing, "both": both, "overlap": min(max(hidden, 0.0), 100.0)}


def _wait(request: Request | None) -> None:
    if request is not None:
        request.wait()
