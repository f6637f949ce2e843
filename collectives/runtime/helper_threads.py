"""The threads beside the caller's: one runs non-blocking collectives, one ends the job where a rank does not come."""

from __future__ import annotations

import atexit
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from scaffe.collectives.fault_tolerance.fencing import SuspendAwareClock
from scaffe.collectives.request import Request
from scaffe.threads import Thread

Task = Callable[[], object]
"""Returns the point on a device at which the result is there, if any (see Request.finish)."""

LAST_CALL_SECONDS = 1.0
"""How long the program waits at its end for a collective under way."""


class ProgressThread:
    """Runs submitted tasks one after another, in the order of submission (which must be the same on every rank)."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Request, Task] | None] = queue.SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, label: str, task: Task, waiting_for: Callable[[], str] = lambda: "") -> Request:
        """Queues a task. ``task``: what it raises is raised again by the request's `wait` and `test`."""
        if self._thread is None:
            self._thread = Thread(self._run, "collectives-progress")
            self._thread.start()
            atexit.register(self._leave)
        request = Request(label, waiting_for)
        self._tasks.put((request, task))
        return request

    def stop(self) -> None:
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None
            atexit.unregister(self._leave)

    def _leave(self) -> None:
        """Lets callbacks return before the interpreter ends: one in C++ (PyTorch's futures) would abort it."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(LAST_CALL_SECONDS)

    def _run(self) -> None:
        while (item := self._tasks.get()) is not None:
            request, task = item
            request.started = time.perf_counter()
            try:
                point = task()
            except Exception as error:
                request.finish(error)
            else:
                request.finish(point=point)


TICK_SECONDS = 0.5
ANY, NONE = -2, -1
"""Waiting for whichever rank is last, as MPI's own collectives do; not waiting."""
ANYONE = (ANY,)
"""What a single call inside MPI waits for, as `Watch.begin` takes it."""


class Watch:
    """Where one thread is in its collective. That thread writes it, the watchdog reads it: no lock is needed."""

    def __init__(self, rank: int, deadline: float, expired: Callable[[str], None],
                 waiting: Callable[[], None] = lambda: None, late: Callable[[], Sequence[int]] = tuple) -> None:
        """Args:
            deadline: seconds without progress that are too long.
            expired: called with a line, once, from the watchdog's thread when the deadline has passed.
            waiting: called from that thread now and then while there is no progress.
            late: gives the ranks that a call inside MPI may wait for, as far as can be told.
        """
        self.position = 0
        self.label = ""
        self._rank, self._deadline, self._expired = rank, deadline, expired
        self._waiting, self._late_ranks = waiting, late
        self._waits_for: Sequence[int] = ()
        self._n_runs = 0
        self._closed = threading.Event()
        self._thread: Thread | None = None

    def begin(self, waits_for: Sequence[int]) -> None:
        """A collective begins. ``waits_for``: the peer that each of its calls waits for, ANY or NONE."""
        self.position, self._waits_for = 0, waits_for
        self._n_runs += 1
        if self._thread is None:
            self._thread = Thread(self._run, "collectives-watch")
            self._thread.start()

    def end(self) -> None:
        self._waits_for = ()

    def close(self) -> None:
        """Ends the watch, whatever has begun and not ended."""
        self._waits_for = ()
        self._closed.set()

    def join(self) -> None:
        """After `close`: returns when the watchdog's thread has ended."""
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def for_any(self, label: str) -> Iterator[None]:
        """Watches, as a context, over a call of MPI that returns when the other ranks have made it too."""
        self.label = label
        self.begin(ANYONE)
        try:
            yield
        finally:
            self.end()

    def text(self) -> str:
        """Says for errors which peer is waited for; empty where none is."""
        peer = self._peer()
        return "" if peer == NONE else f", waiting for {_name(peer)}"

    @property
    def deadline(self) -> float:
        """Seconds without progress that are too long."""
        return self._deadline

    def late(self, label: str, *peers: int) -> None:
        """Ends the job, since `label` has waited too long: for these ranks, or for those that are late as far as can be
        told."""
        self.failed(label, f"has waited {self.deadline:g} s for {_name(*(peers or self._late_ranks()))}")

    def failed(self, label: str, how: str) -> None:
        """Ends the job. ``how``: what came of `label`, as the rest of the line."""
        self._expired(f"rank {self._rank}: {label} {how}")

    def _peer(self) -> int:
        waits_for, position = self._waits_for, self.position
        return waits_for[position] if position < len(waits_for) else NONE

    def _run(self) -> None:
        seen, waited = (-1, -1), SuspendAwareClock()
        while not self._closed.wait(min(TICK_SECONDS, self._deadline / 4)):
            now = (self._n_runs, self.position)
            peer = self._peer()
            if now != seen or peer == NONE:
                seen, waited = now, SuspendAwareClock()
                continue
            self._waiting()
            if waited.seconds() > self._deadline:
                self.late(self.label, *(() if peer == ANY else (peer,)))
                return


def _name(*peers: int) -> str:
    known = ", ".join(str(peer) for peer in peers if peer != ANY)
    return f"rank {known}" if known else "another rank"
