"""Latency of one message, and how much of a non-blocking collective hides behind compute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.collectives.bench.measure import time_call
from scaffe.collectives.bench.payload import Payload
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.request import Request
from scaffe.jit import compiled


def measure_latency(communicator: Communicator, buffer: Any, n_warm: int, n_timed: int,
                    payload: Payload) -> np.ndarray:
    """Measures half a round trip; every element is verified first. All ranks call it.

    Args:
        communicator: two ranks or more.
        buffer: what rank 0 and rank 1 send, flat.

    Returns:
        float64, shape (n_timed,): seconds of one way, of the slowest rank.

    Raises:
        CommError: with fewer than two ranks, or on a wrong element.
    """
    if communicator.n_ranks < 2:
        raise CommError("latency needs 2 ranks, this job has 1", everywhere=True)
    ping = communicator.message_pair(buffer)
    payload.fill(buffer, communicator.rank)
    ping()
    rank = communicator.rank
    wrong = communicator.allgather_objects(payload.n_wrong(buffer, 0, buffer.size, 0) if rank < 2 else 0)
    if any(wrong):
        raise CommError(f"latency, {buffer.nbytes} bytes: {sum(wrong)} wrong elements", everywhere=True)
    seconds = np.zeros(n_timed)
    for index in range(-n_warm, n_timed):
        started = time.perf_counter()
        ping()
        if index >= 0:
            seconds[index] = (time.perf_counter() - started) / 2
    slowest: np.ndarray = np.max(communicator.allgather_objects(seconds), axis=0)
    return slowest


@compiled
def _work(values: np.ndarray, n_rounds: int) -> None:
    """Arithmetic that stays in registers and the first-level cache. values: float32."""
    for _ in range(n_rounds):
        for i in range(values.size):
            values[i] = values[i] * np.float32(0.999) + np.float32(0.001)


class Compute:
    """A fixed amount of work on this rank's core, counted in rounds: losing the core to others shows as time."""

    def __init__(self) -> None:
        """Starts with some milliseconds of work; `last` sets how long."""
        self._values = np.ones(1024, np.float32)
        self._n_rounds = 20_000

    def last(self, seconds: float, took: float) -> None:
        """Scales the work to `seconds`, given that it now takes `took` seconds. All ranks give the same figures."""
        self._n_rounds = max(int(self._n_rounds * seconds / took), 1)

    def run(self) -> None:
        _work(self._values, self._n_rounds)


def measure_overlap(communicator: Communicator, start: Callable[[], Request | None], n_warm: int,
                    n_timed: int) -> dict[str, float]:
    """Measures how much of a collective hides behind compute. All ranks call it.

    The collective alone, as much compute alone, and both together take turns. All figures are medians over the
    rounds, so that a change in the machine's speed, which meets all three of a round, does not pass for overlap or for
    the lack of it. The work is fitted to the collective's time every round: work that is too short to hide the
    collective would count as not hidden.

    Returns:
        Seconds of the collective alone (`pure`), compute alone (`compute`) and both together (`both`); and the
        percentage hidden (`overlap`), 100 (pure + compute - both) / min(pure, compute) between 0 and 100, which is
        osu_ireduce's where compute lasts as long as the collective.
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
