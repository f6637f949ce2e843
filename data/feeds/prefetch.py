"""Prefetches batches in threads, into a ring of buffers. Any number of threads gives the batches in the same order."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Generic, TypeVar

from scaffe import forking
from scaffe.errors import UserError
from scaffe.threads import Thread

Job = TypeVar("Job")
Slot = TypeVar("Slot")


class _Ring(Generic[Job, Slot]):
    """What the threads share. Batch b is made in slot b % n_slots, once the consumer has returned batch b - n_slots."""

    def __init__(self, jobs: Iterator[Job], fill: Callable[[Job, Slot], None], slots: list[Slot]) -> None:
        self.jobs, self.fill, self.slots = jobs, fill, slots
        self.changed = threading.Condition()
        self.n_taken = self.n_freed = 0  # batches begun by threads; batches returned by the consumer
        self.ready: dict[int, BaseException | None] = {}
        self.stopped = False
        self.threads: list[Thread] = []
        self.under_way: dict[int, Job] = {}
        self.again: list[tuple[int, Job]] = []  # that threads of another process were making
        forking.hold(self.changed)
        forking.in_child(self.begin_again)

    def begin_again(self) -> None:
        """In a forked child, which has none of the threads: what they were making is made again."""
        self.again, self.threads = sorted(self.under_way.items(), key=itemgetter(0)), []

    def take(self) -> tuple[int, Job] | None:
        """Wait for a free slot and return the next batch to make; None if the thread is to end."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or self.again or self.n_taken < self.n_freed + len(self.slots))
            if self.stopped:
                return None
            if self.again:
                return self.again.pop(0)
            batch = self.n_taken
            self.n_taken += 1
            try:
                self.under_way[batch] = next(self.jobs)
                return batch, self.under_way[batch]
            except BaseException as error:
                self._finish(batch, error)
                return None

    def work(self) -> None:
        """What a reader thread runs."""
        while (task := self.take()) is not None:
            batch, job = task
            error: BaseException | None = None
            try:
                self.fill(job, self.slots[batch % len(self.slots)])
            except BaseException as caught:
                error = caught
            with self.changed:
                self._finish(batch, error)

    def _finish(self, batch: int, error: BaseException | None) -> None:
        self.under_way.pop(batch, None)
        self.ready[batch] = error
        self.stopped = self.stopped or error is not None
        self.changed.notify_all()

    def stop(self) -> None:
        """Tell the threads to end, and wait until they have.

        One of them does not wait for the others: a forgotten feed may be collected in any thread, at any allocation,
        and so while that thread holds a lock that the others need.
        """
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        for thread in self.threads if threading.current_thread() not in self.threads else ():
            thread.join()


class Prefetcher(Generic[Job, Slot]):
    """Fills slots from jobs, ahead of the consumer and in the jobs' order.

    Args:
        jobs: one item for each batch; only one thread at a time takes from it.
        fill: makes the batch of a job in a slot; several threads call it at once.
        slots: buffers, used in turn. The consumer holds one, so n slots prefetch n - 1 batches.
        n_threads: reader threads; 0 makes each batch in the caller's thread when it is asked for.

    Attributes:
        slots: as given.
    """

    def __init__(self, jobs: Iterator[Job], fill: Callable[[Job, Slot], None], slots: list[Slot],
                 n_threads: int = 1) -> None:
        self.slots = slots
        self._ring = _Ring(jobs, fill, slots)
        self._n_given, self._n_threads = 0, n_threads
        # daemons, so that a forgotten feed cannot hold up the interpreter's exit; the finalizer runs at exit
        # too, before daemons would be frozen, and lets each thread end what it is doing
        self._finalizer = weakref.finalize(self, _Ring.stop, self._ring)

    def next(self) -> Slot:
        """The next batch's slot, valid until the next call. Raises what ``fill`` or ``jobs`` raised for this batch."""
        ring = self._ring
        if self._n_threads == 0:
            ring.fill(next(ring.jobs), ring.slots[0])
            return ring.slots[0]
        self._start()
        with ring.changed:
            ring.n_freed = self._n_given
            ring.changed.notify_all()
            ring.changed.wait_for(lambda: self._n_given in ring.ready or self._idle())
            if self._n_given not in ring.ready:
                raise RuntimeError("the feed is closed")
            error = ring.ready.pop(self._n_given)
        if error is not None:
            self.close()
            raise error
        self._n_given += 1
        return ring.slots[(self._n_given - 1) % len(ring.slots)]

    def close(self) -> None:
        """End the threads once they have finished their current batches. May be called twice."""
        self._finalizer()

    def _start(self) -> None:
        """Start the threads at the first request, so that a net that is never run starts none."""
        ring: _Ring[Any, Any] = self._ring
        if ring.threads or ring.stopped:
            return
        try:
            for i in range(self._n_threads):
                thread = Thread(ring.work, f"reader-{i}")
                thread.start()
                ring.threads.append(thread)
        except UserError:  # the system refuses another thread
            self.close()
            raise

    def _idle(self) -> bool:
        return self._ring.stopped and not any(thread.is_alive() for thread in self._ring.threads)
