"""The workers' promises as messages between them (``stops`` decides what they say)."""

from __future__ import annotations

import time

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.errors import UserError
from scaffe.training.served.stops import Promise, Stops

TAG = 1
N_NUMBERS = 4
WAIT_SECONDS = 0.01


class Meeting:
    """One worker's end of the agreement on stops and snapshots. All workers make one; one thread uses it.

    Args:
        workers: a communicator of the workers, whose messages nobody else uses.
    """

    def __init__(self, workers: Communicator) -> None:
        self._workers, self._level = workers, 0
        self._messages = workers.messages if workers.n_ranks > 1 else None
        self._stops = Stops(workers.rank, workers.n_ranks)

    def begin(self, n_done: int) -> None:
        """See Stops."""
        self._stops.begin(n_done)

    def agree(self, level: int, n_done: int) -> int:
        """What all workers do when each has done ``n_done`` iterations; see ``Strategy.agree``.

        Args:
            level: what this worker wants.
            n_done: iterations that it has done, the present one included.

        Raises:
            UserError: a worker has not answered within the communicator's patience.
        """
        self._level = level
        self.poll()
        started = time.monotonic()
        while self._stops.must_wait(n_done):
            if time.monotonic() - started > self._workers.patience:
                raise UserError(f"rank {self._workers.rank} waited {self._workers.patience:g} s for all workers to say "
                                "after which iteration they can stop")
            time.sleep(WAIT_SECONDS)
            self.poll()
        due = self._stops.due(n_done)
        if due:
            self._level = 0  # what was wanted is done: ``poll`` asks for no other meeting
        self._stops.begin(n_done)
        return due

    def close(self) -> None:
        """Nothing goes on between calls."""

    def poll(self) -> None:
        """Hear the promises that have come, and give this worker's where one is wanted. Does not wait."""
        while self._messages is not None and (found := self._messages.iprobe(tag=TAG)) is not None:
            numbers = np.empty(N_NUMBERS, np.int64)
            self._messages.recv(numbers, found.source, TAG)
            self._stops.hear(Promise(*numbers.tolist()))
        promise = self._stops.ask(self._level)
        if promise is None or self._messages is None:
            return
        numbers = np.array([promise.worker, promise.meeting, promise.level, promise.limit], np.int64)
        for other in range(self._workers.n_ranks):
            if other != self._workers.rank:
                self._messages.isend(numbers, other, TAG)
