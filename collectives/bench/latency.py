"""Ping-pong between rank 0 and rank 1: the time of one message."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from scaffe.collectives.bench.payload import Payload
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError


def measure_latency(communicator: Communicator, buffer: Any, n_warm: int, n_timed: int,
                    payload: Payload) -> np.ndarray:
    """Measures half a round trip; every element is verified first. All ranks call it.

    Args:
        communicator: two ranks or more.
        buffer: what rank 0 and rank 1 send, flat.
        n_warm: round trips before timing.
        n_timed: timed round trips.
        payload: what to verify with.

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
