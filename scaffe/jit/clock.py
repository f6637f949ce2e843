"""When this process has compiled: numba does it one function after the other, whichever thread asks.

Source: numba's event API, "numba:compile", which stands for compiling alone, not for code from the cache.
"""

from __future__ import annotations

import time

from numba.core import event


class _Clock(event.Listener):
    """Notes when compiling begins and ends; functions that a function calls are compiled within it."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []  # perf_counter seconds, in order
        self._depth, self._started = 0, 0.0

    def on_start(self, event: event.Event) -> None:
        """See numba's Listener."""
        if not self._depth:
            self._started = time.perf_counter()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """See numba's Listener."""
        self._depth -= 1
        if not self._depth:
            self.spans.append((self._started, time.perf_counter()))


_clock = _Clock()
event.register("numba:compile", _clock)  # type: ignore[no-untyped-call]


def compiling_seconds(started: float, ended: float) -> float:
    """How long this process has compiled between two times.

    Args:
        started, ended: of ``time.perf_counter()``, in seconds.
    """
    total = 0.0
    for first, last in reversed(_clock.spans):
        if last <= started:
            break
        total += max(min(last, ended) - max(first, started), 0.0)
    return total
