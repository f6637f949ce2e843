"""Threads make batches ahead, in order, into buffers used again; they end when told, and nothing hangs."""

import contextlib
import gc
import itertools
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from scaffe.data.feeds.prefetch import Maker, Prefetcher
from scaffe.errors import UserError


def prefetch(jobs, fill, slots, n_threads):
    """A prefetcher of batches that are made whole."""
    return Prefetcher(jobs, Maker(lambda job, slot, rows: fill(job, slot)), slots, n_threads)


def next_unless_closed(prefetcher):
    """What a thread of a test may end with, that closes the feed."""
    with contextlib.suppress(RuntimeError):
        prefetcher.next()


def fill(job, slot):
    """Later jobs are made faster, to provoke disorder."""
    time.sleep(0.002 * (3 - job % 4))
    slot[:] = job


@pytest.mark.parametrize("n_threads", [0, 1, 2, 5])
@pytest.mark.parametrize("n_slots", [1, 2, 5])
def test_order_does_not_depend_on_threads(new_threads, n_threads, n_slots):
    slots = [np.zeros(3) for _ in range(n_slots)]
    prefetcher = prefetch(itertools.count(), fill, slots, n_threads)
    for expected in range(12):
        slot = prefetcher.next()
        assert any(slot is one for one in slots)
        np.testing.assert_array_equal(slot, expected)
    prefetcher.close()
    assert not new_threads("reader-")


def test_a_batch_stays_whole_until_the_next_is_asked_for():
    prefetcher = prefetch(itertools.count(), lambda job, slot: slot.fill(job), [np.zeros(2) for _ in range(3)], 2)
    for expected in range(30):
        slot = prefetcher.next()
        time.sleep(0.001)  # readers run on meanwhile
        np.testing.assert_array_equal(slot, expected)
    prefetcher.close()


def test_no_more_is_made_than_there_are_slots():
    made = []
    prefetcher = prefetch(itertools.count(), lambda job, slot: made.append(job), [[]] * 4, 2)
    prefetcher.next()
    deadline = time.monotonic() + 60
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert sorted(made) == [0, 1, 2, 3]
    prefetcher.close()


def fail_at(n):
    """A fill that fails at job n."""

    def fill(job, slot):
        if job == n:
            raise ValueError(f"job {job}")
        slot[:] = job

    return fill


@pytest.mark.parametrize("n_threads", [0, 1, 3])
def test_an_error_arrives_in_its_turn_and_ends_the_threads(new_threads, n_threads):
    prefetcher = prefetch(itertools.count(), fail_at(3), [np.zeros(1) for _ in range(3)], n_threads)
    assert [float(prefetcher.next()[0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="job 3"):
        prefetcher.next()
    assert not new_threads("reader-")


def test_the_end_of_the_jobs_is_the_end():
    prefetcher = prefetch(iter([1, 2]), lambda job, slot: slot.fill(job), [np.zeros(1) for _ in range(3)], 2)
    assert [float(prefetcher.next()[0]) for _ in range(2)] == [1, 2]
    with pytest.raises(StopIteration):
        prefetcher.next()


def test_a_closed_one_says_so():
    prefetcher = prefetch(itertools.count(), fill, [np.zeros(1)], 1)
    prefetcher.next()
    prefetcher.close()
    prefetcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        prefetcher.next()


def test_forgetting_it_ends_the_threads(new_threads):
    prefetcher = prefetch(itertools.count(), fill, [np.zeros(1) for _ in range(3)], 2)
    prefetcher.next()
    assert len(new_threads("reader-")) == 2
    del prefetcher
    gc.collect()
    assert not new_threads("reader-")


def test_a_reader_that_ends_the_feed_does_not_wait_for_others_that_wait_for_it():
    """As where a reader allocates, holding a lock, and the feed that nobody has any longer is collected just then."""
    lock, other_waits, has_ended = threading.Lock(), threading.Event(), threading.Event()

    def fill(job, slot):
        if job:
            other_waits.set()
            with lock:
                return
        with lock:
            other_waits.wait(60)
            prefetcher.close()
        has_ended.set()

    prefetcher = prefetch(itertools.count(), fill, [[]] * 3, 2)
    threading.Thread(target=next_unless_closed, args=[prefetcher], daemon=True).start()
    assert has_ended.wait(60)


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "1 / 0"])
def test_the_interpreter_exits_with_readers_at_work(ending):
    script = ("import itertools, time\nfrom scaffe.data.feeds.prefetch import Maker, Prefetcher\n"
              "p = Prefetcher(itertools.count(), Maker(lambda j, s, r: time.sleep(0.01)), [0] * 4, 3)\n"
              "p.next()\n" + ending)
    done = subprocess.run([sys.executable, "-c", script], timeout=100, capture_output=True, text=True, check=False)
    assert done.returncode == {"": 0, "raise SystemExit(3)": 3}.get(ending, 1)
    assert "Fatal" not in done.stderr


@pytest.mark.parametrize("n_threads", [0, 1, 3])
def test_a_child_goes_on_with_the_batch_that_the_parent_is_at(forked, n_threads):
    """Also where batches are under way at the fork, whose threads the child has not."""
    prefetcher = prefetch(itertools.count(), fill, [np.zeros(1) for _ in range(4)], n_threads)

    def some(n):
        return [float(prefetcher.next()[0]) for _ in range(n)]

    for first in range(0, 30, 3):
        assert some(3) == [first, first + 1, first + 2]
        assert forked(lambda: some(20)) == list(range(first + 3, first + 23))


def test_what_readers_were_making_at_the_fork_is_made_in_the_child(forked):
    begun, go_on, here = threading.Barrier(3), threading.Event(), os.getpid()

    def fill(job, slot):
        if os.getpid() == here and job < 2:
            begun.wait(60)
            go_on.wait(60)
        slot[:] = job

    prefetcher = prefetch(itertools.count(), fill, [np.zeros(1) for _ in range(4)], 2)
    threading.Thread(target=next_unless_closed, args=[prefetcher], daemon=True).start()
    begun.wait(60)
    assert forked(lambda: [float(prefetcher.next()[0]) for _ in range(6)]) == [0, 1, 2, 3, 4, 5]
    go_on.set()


def test_a_child_may_close_or_leave_what_it_inherited(forked):
    prefetcher = prefetch(itertools.count(), fill, [np.zeros(1) for _ in range(3)], 2)
    assert float(prefetcher.next()[0]) == 0
    assert forked(prefetcher.close) is None
    assert float(prefetcher.next()[0]) == 1


def test_no_room_for_all_threads_is_one_line_and_none_stays(new_threads, monkeypatch):
    """As under ulimit -u; the interpreter's own error for it has no name that a user knows."""
    start, n_room = threading.Thread.start, itertools.count()

    def limited(self):
        if next(n_room) == 2:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    prefetcher = prefetch(itertools.count(), fill, [np.zeros(3)] * 2, 5)
    with pytest.raises(UserError, match="thread 'reader-2' cannot start"):
        prefetcher.next()
    assert new_threads("reader") == []


def numbers(n_rows):
    """A maker of batches of n_rows numbers: the job's, and the row's."""
    def fill(job, slot, rows):
        for row in range(rows.start, rows.stop):
            slot[row] = 100 * job + row

    return Maker(fill, lambda job: n_rows, lambda job, slot: slot.fill(-1))


@pytest.mark.parametrize("n_threads", [0, 1, 3, 7])
@pytest.mark.parametrize("n_rows, piece_rows", [(1, 4), (7, 3), (12, 4), (5, 1)])
def test_pieces_make_whole_batches(n_threads, n_rows, piece_rows):
    slots = [np.zeros(n_rows) for _ in range(3)]
    prefetcher = Prefetcher(itertools.count(), numbers(n_rows), slots, n_threads, piece_rows)
    for batch in range(40):
        np.testing.assert_array_equal(prefetcher.next(), 100 * batch + np.arange(n_rows))
    prefetcher.close()


def test_all_threads_work_on_few_batches_at_once():
    together, n_threads = threading.Barrier(6), 6

    def fill(job, slot, rows):
        if job == 0:
            together.wait(60)  # breaks, and fails the batch, unless six threads come here
        slot[rows] = job

    slots = [np.zeros(12) for _ in range(2)]
    prefetcher = Prefetcher(itertools.count(), Maker(fill, lambda job: 12), slots, n_threads, 2)
    for batch in range(3):
        assert (prefetcher.next() == batch).all()
    prefetcher.close()


@pytest.mark.parametrize("n_threads", [0, 1, 3])
def test_a_batch_that_is_finished_otherwise_is_a_good_one(n_threads):
    """As where a sample has another shape than the others: what finishes it sees the first piece's error."""
    def fill(job, slot, rows):
        if job == 2 and rows.stop > 2:
            raise ValueError(rows.start)
        slot[rows] = job

    def finish(job, slot, error):
        if error is not None:
            slot[:] = -1 - error.args[0]

    slots = [np.zeros(6) for _ in range(4)]
    prefetcher = Prefetcher(itertools.count(), Maker(fill, lambda job: 6, finish=finish), slots, n_threads, 2)
    found = [prefetcher.next().tolist() for _ in range(5)]
    assert found == [[job] * 6 for job in (0, 1)] + [[-1 - 2 * (n_threads > 0)] * 6] + [[job] * 6 for job in (3, 4)]
    prefetcher.close()


def test_readers_are_added_while_the_consumer_waits(new_threads):
    """The consumer takes no time, so it waits for nearly all of it; the threads wait, too, all at once."""
    chosen = []

    def fill(job, slot, rows):
        time.sleep(0.001)
        slot[rows] = job

    prefetcher = Prefetcher(itertools.count(), Maker(fill, lambda job: 8), [np.zeros(8) for _ in range(5)], 1, 2, 4,
                            chosen.append)
    assert [float(prefetcher.next()[-1]) for _ in range(400)] == list(range(400))
    assert 2 <= len(new_threads("reader-")) <= 4
    assert len(chosen) <= 1
    prefetcher.close()
    assert not new_threads("reader-")


def test_no_room_for_another_reader_is_no_end(new_threads, monkeypatch):
    """A number of readers that the feed itself chooses ends nothing: as many read as there is room for."""
    start, n_room = threading.Thread.start, itertools.count()

    def limited(self):
        if self.name.startswith("reader") and next(n_room) >= 2:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)

    def fill(job, slot, rows):
        time.sleep(0.001)
        slot[rows] = job

    prefetcher = Prefetcher(itertools.count(), Maker(fill, lambda job: 8), [np.zeros(8) for _ in range(5)], 1, 2, 6)
    assert [float(prefetcher.next()[-1]) for _ in range(200)] == list(range(200))
    assert next(n_room) > 2, "it never asked for more"
    assert len(new_threads("reader-")) == 2
    prefetcher.close()
