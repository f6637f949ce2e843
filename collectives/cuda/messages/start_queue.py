"""Steps that start one after another, each as soon as its condition holds: how messages follow the device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

POLLS_BEFORE_SLEEP, FIRST_SLEEP_SECONDS, LONGEST_SLEEP_SECONDS = 50, 20e-6, 200e-6
"""A wait that backs off polls so often before it sleeps, then doubles each sleep: the longest is about what a chunk of
1 MiB takes at 5 GB/s."""


class StartQueue:
    """First in, first out: a step that may not start yet holds up those behind it, but never a host thread."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], bool], Callable[[], object]]] = deque()

    def put(self, may_start: Callable[[], bool], start: Callable[[], object]) -> None:
        """Appends a step: `progress` calls `start()` once `may_start()` is true and all earlier steps have started."""
        self._waiting.append((may_start, start))

    def progress(self) -> None:
        """Starts the steps that may start."""
        waiting = self._waiting
        while waiting and waiting[0][0]():
            waiting.popleft()[1]()


def wait_until(is_done: Callable[[], bool], backs_off: bool) -> None:
    """Polls until `is_done()`; other threads of this process may run between polls.

    Args:
        is_done: what is waited for.
        backs_off: sleep between polls, so that the core is free for other processes too.
    """
    pause, n_polls = FIRST_SLEEP_SECONDS, 0
    while not is_done():
        n_polls += 1
        if backs_off and n_polls > POLLS_BEFORE_SLEEP:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP_SECONDS)
        else:
            time.sleep(0)
