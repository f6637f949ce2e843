"""When copies on a stream, or its waits, ran, for a timeline: by events that are looked at once they have passed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from scaffe.layers.kernels import device


class CopyLane:
    """The copies of one stream, or what it waits for, each between two events.

    Args:
        stream: theirs.

    Attributes:
        stream: likewise.
    """

    def __init__(self, stream: Any) -> None:
        self.stream, self._zero, self._began = stream, time.perf_counter(), _mark(stream)
        self._copies: deque[tuple[str, Any, Any]] = deque()

    def begin(self, label: str) -> None:
        """A copy is queued next."""
        self._copies.append((label, _mark(self.stream), None))

    def end(self) -> None:
        """It is."""
        label, start, _ = self._copies.pop()
        self._copies.append((label, start, _mark(self.stream)))

    def report(self, record: Callable[[str, float, float], None]) -> None:
        """Pass on those that have ended since the last call. The host does not wait."""
        while self._copies and self._copies[0][2] is not None and self._copies[0][2].done:
            label, start, end = self._copies.popleft()
            record(label, self._host_time(start), self._host_time(end))

    def _host_time(self, event: Any) -> float:
        return self._zero + float(device.load().cuda.get_elapsed_time(self._began, event)) / 1e3


def _mark(stream: Any) -> Any:
    event = device.load().cuda.Event()
    event.record(stream)
    return event
