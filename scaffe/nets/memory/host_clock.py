"""How long steps take on a machine whose host computes."""

from __future__ import annotations

import time


class HostClock:
    """See Clock.

    Attributes:
        seconds: of each step, as last measured.
    """

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._started = 0.0

    def begin(self, step: int) -> None:
        """See Clock."""
        self._started = time.perf_counter()

    def end(self, step: int) -> None:
        """See Clock."""
        now = time.perf_counter()
        self.seconds[step] = now - self._started
        self._started = now
