"""How long a disk took for each of two ways that it goes at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class DiskSeconds:
    """Shares time out: what passes while both ways are busy counts half for each, so that the times of both make up
    those in which the disk was busy. Bytes over seconds is then what one way would have alone.

    Attributes:
        seconds: of each way, by its number.
    """

    def __init__(self) -> None:
        self.seconds = [0.0, 0.0]
        self._n_under_way, self._at = [0, 0], 0.0

    def count(self, way: int, change: int, now: float) -> None:
        """A piece begins (change 1) or ends (-1) on a way."""
        busy = [i for i, number in enumerate(self._n_under_way) if number]
        for i in busy:
            self.seconds[i] += (now - self._at) / len(busy)
        self._n_under_way[way] += change
        self._at = now


class DiskClock:
    """Seconds of pieces that threads move.

    Attributes:
        seconds: see DiskSeconds; current while nothing is under way.
    """

    def __init__(self) -> None:
        self._counted, self._lock = DiskSeconds(), threading.Lock()
        self.seconds = self._counted.seconds

    @contextmanager
    def __call__(self, way: int) -> Iterator[None]:
        """A piece is on its way within the with-block."""
        self._count(way, 1)
        try:
            yield
        finally:
            self._count(way, -1)

    def _count(self, way: int, change: int) -> None:
        with self._lock:
            self._counted.count(way, change, time.perf_counter())
