"""Messages that follow the device's work: queues of steps, each of which starts once its condition holds."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from scaffe.collectives.cuda.streams import Streams

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
        waiting = self._waiting
        while waiting and waiting[0][0]():
            waiting.popleft()[1]()


def wait_until(is_done: Callable[[], bool], backs_off: bool) -> None:
    """Polls until `is_done()`; other threads of this process may run between polls."""
    pause, n_polls = FIRST_SLEEP_SECONDS, 0
    while not is_done():
        n_polls += 1
        if backs_off and n_polls > POLLS_BEFORE_SLEEP:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP_SECONDS)
        else:
            time.sleep(0)


class StartQueues:
    """The start queues of one engine: per peer one for receives, one for copies to the host and one for sends."""

    def __init__(self, streams: Streams, backs_off: bool) -> None:
        self.streams, self.backs_off = streams, backs_off
        self._queues: defaultdict[tuple[str, int], StartQueue] = defaultdict(StartQueue)

    def of(self, kind: str, peer: int) -> StartQueue:
        return self._queues[kind, peer]

    def progress(self) -> None:
        for queue in self._queues.values():
            queue.progress()


class DeviceMessage:
    """A persistent MPI request that starts behind a point of the communication stream (see transport.Message)."""

    def __init__(self, queues: StartQueues, kind: str, peer: int, request: Any) -> None:
        self._queues, self._queue, self._request = queues, queues.of(kind, peer), request
        self._ready = queues.streams.event()
        self._is_started = True

    def Start(self) -> None:
        """Queues the message behind what the communication stream has been given so far."""
        self._is_started = False
        self._ready.mark(self._queues.streams.comm)
        self._enqueue()
        self._queues.progress()

    def Wait(self) -> None:
        wait_until(self._is_done, self._queues.backs_off)

    def _is_done(self) -> bool:
        self._queues.progress()  # other messages start meanwhile
        return self.is_complete()

    def Free(self) -> None:
        self._request.Free()

    def is_complete(self) -> bool:
        return self._is_started and bool(self._request.Test())

    def _enqueue(self) -> None:
        self._queue.put(self._ready.is_reached, self._start)

    def _start(self) -> None:
        self._is_started = True
        self._request.Start()
