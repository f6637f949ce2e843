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
        self._streaming, self._idle_since = SHORTEST_SECONDS, 0.0

    def interval(self, n_done: int, is_streaming: bool, now: float) -> float:
        """The time to sleep before the next poll.

        Args:
            n_done: messages that were found done since the last sleep.
            is_streaming: whether rows are under way.
            now: in seconds.
        """
        if n_done:
            self._idle_since = now
        if not is_streaming:
            self._streaming = SHORTEST_SECONDS
            return _within((now - self._idle_since) * SHARE_OF_TIME)
        self._streaming = _within(self._streaming * min(max(CHUNKS_A_POLL / max(n_done, 1), 0.5), 1.5))
        return self._streaming


def _within(seconds: float) -> float:
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)
