"""A clock that stands still while this process is stopped, so that a job put to sleep does not wake up too late."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_SECONDS = 5.0
"""More between two looks at the clock counts as this much: the process has not been running."""


class Awake:
    """Seconds that have passed since it was made, but for those in which nobody looked.

    SIGSTOP to all ranks (a scheduler that suspends jobs, Ctrl-Z) ends nothing then: no peer has been waited for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
            clock: gives seconds.
        """
        self._clock, self._last, self._seconds = clock, clock(), 0.0

    def seconds(self) -> float:
        """The seconds until now; whoever waits asks several times in LONGEST_SECONDS."""
        now = self._clock()
        self._seconds += min(now - self._last, LONGEST_SECONDS)
        self._last = now
        return self._seconds
