"""Messages that follow the device's work: queues of steps, each of which starts once its condition holds."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from scaffe.collectives.cuda.streams import Streams

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, LONGEST_WHEN_BACKING_OFF = 10e-6, 50e-6, 200e-6
"""Between polls, each twice the one before. The last is about what a chunk of 1 MiB takes at 5 GB/s."""
SLACK_NANOSECONDS, PR_SET_TIMERSLACK = 1000, 29
"""Linux ends a thread's sleeps up to 50 us late, to end several at once, unless it asks for less."""


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
    """Polls until `is_done()`, asleep between polls: a thread that only yields asks for the interpreter's lock again at
    once, and takes it from those that read and compute. ``backs_off``: the pauses may grow longer."""
    _sleep_precisely()
    pause, longest = FIRST_PAUSE_SECONDS, LONGEST_WHEN_BACKING_OFF if backs_off else LONGEST_PAUSE_SECONDS
    while not is_done():
        time.sleep(pause)
        pause = min(2 * pause, longest)


_thread = threading.local()


def _sleep_precisely() -> None:
    """Asks for this thread's sleeps to end when they should: 10 us then take some 15, not 65."""
    if not getattr(_thread, "is_precise", False):
        _thread.is_precise = True
        with suppress(OSError, AttributeError):  # not Linux
            ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(SLACK_NANOSECONDS), 0, 0, 0)


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
