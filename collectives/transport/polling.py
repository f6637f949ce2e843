"""Waiting for messages without taking the core from whoever computes."""

from __future__ import annotations

import time

FIRST_NAP_SECONDS, LONGEST_NAP_SECONDS = 50e-6, 2e-3
LEAST_NAP_SECONDS = 25e-6  # a shorter sleep takes longer than asked for (Linux's timer slack is 50 us)
SHARE_OF_TIME = 1 / 16
MESSAGES_A_NAP = 4  # half of what the executor posts ahead: the link stays busy while this thread sleeps


class Patience:
    """How long the helper thread sleeps between two looks at its messages.

    A look costs some 10 us of the core that computes, so there should be few; but a nap is not longer than a
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
        """The next nap; 0 only gives way to other threads."""
        elapsed = time.perf_counter() - self._since
        wanted = min(max(elapsed * SHARE_OF_TIME, FIRST_NAP_SECONDS), LONGEST_NAP_SECONDS)
        nap = min(wanted, elapsed * min(1, MESSAGES_A_NAP / (self._n_done + 1)))
        return nap if nap > LEAST_NAP_SECONDS else 0.0


class PatientMessage:
    """A persistent MPI request whose Wait sleeps between looks."""

    def __init__(self, request, patience: Patience) -> None:
        self.Free = request.Free
        self._start, self._test, self._patience = request.Start, request.Test, patience

    def Start(self) -> None:
        """See transport.Message."""
        self._patience.start()
        self._start()

    def Wait(self) -> None:
        """See transport.Message."""
        while not self._test():
            time.sleep(self._patience.seconds())
        self._patience.done()
