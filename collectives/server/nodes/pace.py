"""How often a gateway asks MPI whether anything has come or gone. Pure."""

from __future__ import annotations

SHORTEST_SECONDS, LONGEST_SECONDS = 50e-6, 2e-3
SHARE_OF_TIME = 1 / 16  # of the time since the last event, while no rows are under way
CHUNKS_A_POLL = 3  # a small part of a window: links stay busy meanwhile


class Pace:
    """The interval between polls.

    While rows are under way it is as long as some chunks take, so that polling costs little however fast the network
    is; otherwise it is a share of the time that nothing has happened.
    """

    def __init__(self) -> None:
        self._busy, self._idle_since = SHORTEST_SECONDS, 0.0

    def interval(self, n_done: int, is_busy: bool, now: float) -> float:
        """The time to sleep before the next poll.

        Args:
            n_done: messages that were found done since the last sleep.
            is_busy: whether rows are under way.
            now: in seconds.
        """
        if n_done:
            self._idle_since = now
        if not is_busy:
            self._busy = SHORTEST_SECONDS
            return _within((now - self._idle_since) * SHARE_OF_TIME)
        self._busy = _within(self._busy * min(max(CHUNKS_A_POLL / max(n_done, 1), 0.5), 1.5))
        return self._busy


def _within(seconds: float) -> float:
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)
