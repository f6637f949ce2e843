"""Steps that start one after another, each as soon as its condition holds: how messages follow the device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

LOOKS, FIRST_NAP_SECONDS, LONGEST_NAP_SECONDS = 50, 20e-6, 200e-6
"""A patient wait looks so often before it sleeps, then twice as long each time: the longest nap is about what a chunk
of 1 MiB takes at 5 GB/s."""


class Lineup:
    """First in, first out: the first step that may not start yet holds up those behind it, and no host thread."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], bool], Callable[[], object]]] = deque()

    def put(self, may_start: Callable[[], bool], start: Callable[[], object]) -> None:
        """`start()` is called by `progress`, after what was put before, once `may_start()` is true."""
        self._waiting.append((may_start, start))

    def progress(self) -> None:
        """Start what may start."""
        waiting = self._waiting
        while waiting and waiting[0][0]():
            waiting.popleft()[1]()


def wait_until(is_done: Callable[[], bool], patient: bool) -> None:
    """Look until `is_done()`. A patient wait sleeps between looks; any lets other threads run."""
    nap, n_looks = FIRST_NAP_SECONDS, 0
    while not is_done():
        n_looks += 1
        if patient and n_looks > LOOKS:
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP_SECONDS)
        else:
            time.sleep(0)
