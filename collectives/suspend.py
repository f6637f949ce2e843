"""Processes that are suspended (SIGSTOP, a laptop asleep): a clock that stands still meanwhile, and how long others
have been."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

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


K = TypeVar("K", bound=Hashable)


class Stopped(Generic[K]):
    """Says who has been stopped for too long.

    Who was not looking for a while, since it was stopped itself, begins to count anew: after a job has been put to
    sleep as a whole, its ranks wake up one after another.
    """

    def __init__(self) -> None:
        self._since: dict[K, float] = {}
        self._last = float("-inf")

    def look(self, now: float, stopped: Collection[K], deadline: float, longest_gap: float) -> list[K]:
        """Notes who is stopped now.

        Args:
            now: seconds.
            stopped: all that are.
            deadline: seconds that are too long.
            longest_gap: seconds since the last look, above which this process itself has been stopped.

        Returns:
            Those that have been at each look for longer than the deadline.
        """
        if now - self._last > longest_gap:
            self._since.clear()
        self._last = now
        self._since = {key: self._since.get(key, now) for key in stopped}
        return [key for key, since in self._since.items() if now - since > deadline]
