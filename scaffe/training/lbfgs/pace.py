"""How long replicas take for a portion, and what follows from it: who is late, and who had better not begin. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

LATE = 1.5
"""A portion is late when it has been out for so many times what its replica usually takes."""
NEW = 0.3
"""Weight of the newest time in a replica's mean, which forgets."""
PATIENCE, LEAST_PATIENCE = 4.0, 0.5
"""A bundle is overdue after so many times what a portion and its way usually take, and so many seconds at least."""


class Pace:
    """Seconds that each replica takes for a portion.

    Attributes:
        n_done: portions computed by each replica, those that did not count included.
        seconds: that each replica has spent on them.
    """

    def __init__(self) -> None:
        self.n_done: dict[int, int] = {}
        self.seconds: dict[int, float] = {}
        self._usual: dict[int, float] = {}
        self._way = 0.0  # seconds that a bundle is on its way

    def took(self, replica: int, seconds: float) -> None:
        """Note a portion's time."""
        self.n_done[replica] = self.n_done.get(replica, 0) + 1
        self.seconds[replica] = self.seconds.get(replica, 0.0) + seconds
        usual = self._usual.get(replica, seconds)
        self._usual[replica] = usual + NEW * (min(seconds, 4 * usual) - usual)  # a halt is no pace

    def arrived(self, seconds: float) -> None:
        """Note how long a bundle was on its way."""
        self._way = max(seconds, self._way + NEW * (seconds - self._way))

    def is_overdue(self, replica: int, since: float, n_fenced: int, now: float) -> bool:
        """Whether who sent a bundle at ``since`` seems to stand still.

        Args:
            replica: the sender.
            since: when.
            n_fenced: how often this was said in the step: patience doubles each time, so that no link is too slow.
            now: seconds.
        """
        usual = self._way + self.usual(replica)
        return now - since >= max(PATIENCE * usual, LEAST_PATIENCE) * (1 << n_fenced)

    def usual(self, replica: int) -> float:
        """Seconds that a replica usually takes; of one that has done none what the others take, 0 if nobody knows."""
        known = self._usual.get(replica)
        return max(self._usual.values(), default=0.0) if known is None else known

    def is_late(self, replicas: Iterable[int], since: float, now: float) -> bool:
        """Whether a portion that was given out last at ``since`` ought to be there: to each of these replicas."""
        return now - since >= LATE * max((self.usual(replica) for replica in replicas), default=0.0)

    def is_too_slow(self, replica: int, n_waiting: int, busy: Mapping[int, float], now: float) -> bool:
        """Whether the others would have computed all that waits, and this portion too, before this replica had one.

        Args:
            replica: the free one.
            n_waiting: portions that wait.
            busy: the others that compute, and since when. Those that are late do not count.
            now: seconds.
        """
        others = [self.usual(name) for name, since in busy.items() if not self.is_late([name], since, now)]
        rate = sum(1 / seconds for seconds in others if seconds)
        return bool(rate) and self.usual(replica) > n_waiting / rate + max(others)
