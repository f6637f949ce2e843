"""For how long other processes have been stopped (SIGSTOP), as far as this one has been awake to see it: pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

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
