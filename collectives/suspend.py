"""Suspended processes (SIGSTOP, a laptop asleep): a clock that does not count the time, and who has been for long."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

LONGEST_SECONDS = 5.0
"""More than this between two readings counts as this much: the process has not been running."""


class SuspendAwareClock:
    """A clock of the seconds since it was made, without those in which this process was suspended.

    Time limits that it measures do not run out where all ranks get SIGSTOP (a scheduler that suspends jobs, Ctrl-Z).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
            clock: gives seconds.
        """
        self._clock, self._last, self._seconds = clock, clock(), 0.0

    def seconds(self) -> float:
        """The seconds so far. To be called several times in LONGEST_SECONDS: a longer gap counts as a suspension."""
        now = self._clock()
        self._seconds += min(now - self._last, LONGEST_SECONDS)
        self._last = now
        return self._seconds


K = TypeVar("K", bound=Hashable)


class SuspendedProcesses(Generic[K]):
    """Finds the processes that have been stopped for too long.

    An observer that was stopped itself begins to count anew: when a suspended job goes on, its ranks wake up one after
    another.
    """

    def __init__(self) -> None:
        self._since: dict[K, float] = {}
        self._last = float("-inf")

    def look(self, now: float, stopped: Collection[K], deadline: float, longest_gap: float) -> list[K]:
        """Records which processes are stopped now.

        Args:
            now: seconds.
            stopped: their keys.
            deadline: seconds that are too long.
            longest_gap: seconds since the last call, above which this process itself has been stopped.

        Returns:
            Keys of those that were stopped in every call for longer than the deadline.
        """
        if now - self._last > longest_gap:
            self._since.clear()
        self._last = now
        self._since = {key: self._since.get(key, now) for key in stopped}
        return [key for key, since in self._since.items() if now - since > deadline]
