"""Where a run's time goes: seconds by activity."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Timers:
    """Seconds spent so far under each name, nested names not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[float] = []  # seconds of inner activities, to be taken off the outer ones

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time of a with-block under the name."""
        started = time.perf_counter()
        self._open.append(0.0)
        try:
            yield
        finally:
            elapsed = time.perf_counter() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed - self._open.pop()
            if self._open:
                self._open[-1] += elapsed

    @contextmanager
    def forward(self, net: Any) -> Iterator[None]:
        """Count a forward pass, with the time in layers that bring data under "data"."""
        before = net.data_seconds
        with self("forward"):
            yield
        waited = net.data_seconds - before
        self.seconds["data"] = self.seconds.get("data", 0.0) + waited
        self.seconds["forward"] -= waited

    def shares(self, total_seconds: float) -> dict[str, float]:
        """Each name's part of a total, most first."""
        ranked = sorted(self.seconds.items(), key=lambda item: -item[1])
        return {name: seconds / total_seconds for name, seconds in ranked} if total_seconds else {}
