"""Prefetches batches in threads, into a ring of buffers. Any number of threads gives the batches in the same order."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from scaffe import forking
from scaffe.data.feeds.reader_count import ReaderCount
from scaffe.data.feeds.schedule import Piece, Schedule
from scaffe.errors import UserError
from scaffe.threads import Thread

Job = TypeVar("Job")
Slot = TypeVar("Slot")


def job_rows(job: tuple[Sized, Any]) -> int:
    """The samples of a batch whose job is (records, what else goes with each)."""
    return len(job[0])


def _raise(job: Any, slot: Any, error: BaseException | None) -> None:
    if error is not None:
        raise error


@dataclass(frozen=True)
class Maker(Generic[Job, Slot]):
    """How a batch is made of its job in a slot: in pieces, by several threads at once.

    Attributes:
        fill: makes these samples of the batch.
        n_rows: how many samples the batch has; by default it is made whole.
        begin: called before the first piece.
        finish: called after the last piece, with the error of the first piece that failed, or None; what it raises is
            the batch's error.
    """

    fill: Callable[[Job, Slot, slice], None]
    n_rows: Callable[[Job], int] = lambda job: 1
    begin: Callable[[Job, Slot], None] = lambda job, slot: None
    finish: Callable[[Job, Slot, BaseException | None], None] = _raise


class _Ring(Generic[Job, Slot]):
    """What the threads share: the schedule, behind a lock."""

    def __init__(self, jobs: Iterator[Job], maker: Maker[Job, Slot], slots: list[Slot], piece_rows: int) -> None:
        self.jobs, self.maker, self.slots, self.piece_rows = jobs, maker, slots, piece_rows
        self.schedule: Schedule[Job] = Schedule(len(slots))
        lock = threading.RLock()
        self.work, self.ready, self.parked = (threading.Condition(lock) for _ in range(3))
        self.stopped = False
        self.n_working = 0  # threads beyond these are parked
        self.seconds = 0.0  # that threads have spent on pieces
        self.threads: list[Thread] = []
        forking.hold(self.work)
        forking.in_child(self.begin_again)

    def begin_again(self) -> None:
        """In a forked child, which has none of the threads: what they were making is made again."""
        self.schedule.take_back()
        self.threads = []

    def run(self, number: int) -> None:
        """What reader thread ``number`` runs."""
        while (piece := self._take(number)) is not None:
            start, error = perf_counter(), None
            try:
                self.make(piece)
            except BaseException as caught:
                error = caught
            with self.work:
                self.seconds += perf_counter() - start
                self._end(piece, error)

    def make(self, piece: Piece[Job]) -> None:
        """Make a piece, or finish its batch."""
        slot = self.slots[piece.batch % len(self.slots)]
        if piece.rows is None:
            self.maker.finish(piece.job, slot, self.schedule.error_of(piece.batch))
        else:
            self.maker.fill(piece.job, slot, piece.rows)

    def make_whole(self) -> Slot:
        """Make the next batch in the caller's thread."""
        job, slot, error = next(self.jobs), self.slots[0], None
        self.maker.begin(job, slot)
        try:
            self.maker.fill(job, slot, slice(0, self.maker.n_rows(job)))
        except BaseException as caught:
            error = caught
        self.maker.finish(job, slot, error)
        return slot

    def _take(self, number: int) -> Piece[Job] | None:
        """Wait for a piece to make; None if the thread is to end."""
        with self.work:
            while not self._is_over():
                if number >= self.n_working:
                    self.parked.wait()
                elif (piece := self.schedule.take()) is not None:
                    return piece
                elif self.schedule.may_begin:
                    self._begin()
                else:
                    self.work.wait()
            return None

    def _is_over(self) -> bool:
        return self.stopped or self.schedule.has_ended

    def _begin(self) -> None:
        """Begin the next batch, whose pieces other threads may make, too."""
        slot = self.slots[self.schedule.n_begun % len(self.slots)]
        try:
            job = next(self.jobs)
            self.maker.begin(job, slot)
        except BaseException as error:
            self.schedule.fail(error)
            self.wake()
            return
        self.schedule.begin(job, self.maker.n_rows(job), self.piece_rows)
        self.work.notify_all()

    def _end(self, piece: Piece[Job], error: BaseException | None) -> None:
        self.schedule.end(piece, error)
        if error is not None:
            self.wake()
        elif piece.rows is None:
            self.ready.notify_all()
        if self.schedule.has_ended:
            self.wake()

    def wake(self) -> None:
        """Let all threads, and the consumer, look again."""
        for condition in (self.work, self.ready, self.parked):
            condition.notify_all()

    def stop(self) -> None:
        """Tell the threads to end, and wait until they have.

        One of them does not wait for the others: a forgotten feed may be collected in any thread, at any allocation,
        and so while that thread holds a lock that the others need.
        """
        with self.work:
            self.stopped = True
            self.wake()
        for thread in self.threads if threading.current_thread() not in self.threads else ():
            thread.join()


class Prefetcher(Generic[Job, Slot]):
    """Fills slots from jobs, ahead of the consumer and in the jobs' order.

    Args:
        jobs: one item for each batch; only one thread at a time takes from it.
        maker: makes the batch of a job in a slot.
        slots: buffers, used in turn. The consumer holds one, so n slots prefetch n - 1 batches.
        n_threads: reader threads; 0 makes each batch in the caller's thread when it is asked for.
        piece_rows: samples that a thread makes at a time.
        most_threads: if above 0, the number of threads follows the measured times, from ``n_threads`` up to this.
        on_choice: called once, with a sentence, when that number has been found.

    Attributes:
        slots: as given.
    """

    def __init__(self, jobs: Iterator[Job], maker: Maker[Job, Slot], slots: list[Slot], n_threads: int = 1,
                 piece_rows: int = 32, most_threads: int = 0, on_choice: Callable[[str], None] | None = None) -> None:
        self.slots = slots
        self._ring = _Ring(jobs, maker, slots, piece_rows)
        self._n_given, self._n_threads = 0, n_threads
        self._count = ReaderCount(most_threads) if most_threads and n_threads else None
        self._on_choice, self._last, self._seconds = on_choice, 0.0, 0.0
        # daemons, so that a forgotten feed cannot hold up the interpreter's exit; the finalizer runs at exit
        # too, before daemons would be frozen, and lets each thread end what it is doing
        self._finalizer = weakref.finalize(self, _Ring.stop, self._ring)

    def next(self) -> Slot:
        """The next batch's slot, valid until the next call. Raises what the maker or ``jobs`` raised for this batch."""
        ring = self._ring
        if self._n_threads == 0:
            return ring.make_whole()
        self._start()
        asked = perf_counter()
        with ring.work:
            ring.schedule.n_freed = self._n_given
            ring.work.notify_all()
            ring.ready.wait_for(lambda: self._n_given in ring.schedule.ready or self._idle())
            if self._n_given not in ring.schedule.ready:
                raise RuntimeError("the feed is closed")
            error = ring.schedule.ready.pop(self._n_given)
        if error is not None:
            self.close()
            raise error
        self._n_given += 1
        if self._count is not None:
            self._adapt(self._count, asked)
        return ring.slots[(self._n_given - 1) % len(ring.slots)]

    def close(self) -> None:
        """End the threads once they have finished their current pieces. May be called twice."""
        self._finalizer()

    def _start(self) -> None:
        """Start the threads at the first request, so that a net that is never run starts none."""
        if not self._ring.threads and not self._ring.stopped:
            try:
                self._work_with(self._ring.n_working or self._n_threads)
            except UserError:  # the system refuses another thread
                self.close()
                raise

    def _work_with(self, n_threads: int) -> None:
        """Let this many threads work; those that there are beyond them wait. Raises UserError without room for them."""
        ring: _Ring[Any, Any] = self._ring
        with ring.work:
            ring.n_working = n_threads
            ring.wake()
        for i in range(len(ring.threads), n_threads):
            thread = Thread(partial(ring.run, i), f"reader-{i}")
            thread.start()
            ring.threads.append(thread)

    def _adapt(self, count: ReaderCount, asked: float) -> None:
        """Tell the count what the batch just given has taken, and follow it."""
        now, seconds = perf_counter(), self._ring.seconds
        n_before, n_after = count.n, count.after_batch(now - asked, now - self._last, seconds - self._seconds)
        self._last, self._seconds = now, seconds
        if n_after != n_before:
            try:
                self._work_with(n_after)
            except UserError:  # the system refuses another thread, which is no reason to end: fewer read well
                self._work_with(count.stay_within(len(self._ring.threads)))
        if count.choice and self._on_choice is not None:
            self._on_choice(count.choice)
            self._on_choice = None

    def _idle(self) -> bool:
        return self._ring.stopped and not any(thread.is_alive() for thread in self._ring.threads)
