"""Waiting for messages without taking the core from whoever computes."""

from __future__ import annotations

import time
from typing import Any

FIRST_INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS = 50e-6, 2e-3
LEAST_SLEEP_SECONDS = 25e-6  # a shorter sleep takes longer than asked for (Linux's timer slack is 50 us)
SHARE_OF_TIME = 1 / 16
MESSAGES_PER_INTERVAL = 4  # half of what the executor posts ahead: the link stays busy while this thread sleeps


class PollBackoff:
    """The helper thread's polling interval.

    A poll costs some 10 us of the core that computes, so there should be few; but an interval is not longer than a
    sixteenth of what the collective has taken so far (or 50 us), nor than four of its messages took.
    """

    def __init__(self) -> None:
        self._n_open = self._n_done = 0
        self._since = 0.0

    def start(self) -> None:
        """A message starts; the first one after all others are done begins another collective."""
        if self._n_open == 0:
            self._n_done, self._since = 0, time.perf_counter()
        self._n_open += 1

    def done(self) -> None:
        """A message is done."""
        self._n_open -= 1
        self._n_done += 1

    def seconds(self) -> float:
        """How long to sleep before the next poll; 0 only yields to other threads."""
        elapsed = time.perf_counter() - self._since
        wanted = min(max(elapsed * SHARE_OF_TIME, FIRST_INTERVAL_SECONDS), LONGEST_INTERVAL_SECONDS)
        interval = min(wanted, elapsed * min(1, MESSAGES_PER_INTERVAL / (self._n_done + 1)))
        return interval if interval > LEAST_SLEEP_SECONDS else 0.0


class PolledMessage:
    """A persistent MPI request whose Wait sleeps between polls."""

    def __init__(self, request: Any, backoff: PollBackoff) -> None:
        """Args:
            request: mpi4py's, inactive.
            backoff: shared by all messages of a thread.
        """
        self.Free = request.Free
        self._start, self._test, self._backoff = request.Start, request.Test, backoff

    def Start(self) -> None:
        """See transport.Message."""
        self._backoff.start()
        self._start()

    def Wait(self) -> None:
        """See transport.Message."""
        while not self._test():
            time.sleep(self._backoff.seconds())
        self._backoff.done()
