"""Messages between rank 0 and rank 1, back and forth, through plans of one message: one way's time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from scaffe.collectives.bench.payload import Payload
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError


def measure_latency(communicator: Communicator, buffer: Any, n_warm: int, n_timed: int,
                    payload: Payload) -> np.ndarray:
    """Seconds of one way, per round trip; verified first. Raises CommError with fewer than two ranks."""
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
    return np.max(communicator.allgather_objects(seconds), axis=0)
