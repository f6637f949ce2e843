"""Threads make batches ahead, in order, into buffers used again; they end when told, and nothing hangs."""

import gc
import itertools
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from scaffe.data.feeds.prefetch import Prefetcher
from scaffe.errors import UserError


def fill(job, slot):
    """Later jobs are made faster, to provoke disorder."""
    time.sleep(0.002 * (3 - job % 4))
    slot[:] = job


@pytest.mark.parametrize("n_threads", [0, 1, 2, 5])
@pytest.mark.parametrize("n_slots", [1, 2, 5])
def test_order_does_not_depend_on_threads(new_threads, n_threads, n_slots):
    slots = [np.zeros(3) for _ in range(n_slots)]
    prefetcher = Prefetcher(itertools.count(), fill, slots, n_threads)
    for expected in range(12):
        slot = prefetcher.next()
        assert any(slot is one for one in slots)
        np.testing.assert_array_equal(slot, expected)
    prefetcher.close()
    assert not new_threads("reader-")


def test_a_batch_stays_whole_until_the_next_is_asked_for():
    prefetcher = Prefetcher(itertools.count(), lambda job, slot: slot.fill(job), [np.zeros(2) for _ in range(3)], 2)
    for expected in range(30):
        slot = prefetcher.next()
        time.sleep(0.001)  # readers run on meanwhile
        np.testing.assert_array_equal(slot, expected)
    prefetcher.close()


def test_no_more_is_made_than_there_are_slots():
    made = []
    prefetcher = Prefetcher(itertools.count(), lambda job, slot: made.append(job), [[]] * 4, 2)
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
    prefetcher = Prefetcher(itertools.count(), fail_at(3), [np.zeros(1) for _ in range(3)], n_threads)
    assert [float(prefetcher.next()[0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="job 3"):
        prefetcher.next()
    assert not new_threads("reader-")


def test_the_end_of_the_jobs_is_the_end():
    prefetcher = Prefetcher(iter([1, 2]), lambda job, slot: slot.fill(job), [np.zeros(1) for _ in range(3)], 2)
    assert [float(prefetcher.next()[0]) for _ in range(2)] == [1, 2]
    with pytest.raises(StopIteration):
        prefetcher.next()


def test_a_closed_one_says_so():
    prefetcher = Prefetcher(itertools.count(), fill, [np.zeros(1)], 1)
    prefetcher.next()
    prefetcher.close()
    prefetcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        prefetcher.next()


def test_forgetting_it_ends_the_threads(new_threads):
    prefetcher = Prefetcher(itertools.count(), fill, [np.zeros(1) for _ in range(3)], 2)
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

    prefetcher = Prefetcher(itertools.count(), fill, [[]] * 3, 2)
    threading.Thread(target=prefetcher.next, daemon=True).start()
    assert has_ended.wait(60)


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "1 / 0"])
def test_the_interpreter_exits_with_readers_at_work(ending):
    script = ("import itertools, time\nfrom scaffe.data.feeds.prefetch import Prefetcher\n"
              "p = Prefetcher(itertools.count(), lambda j, s: time.sleep(0.01), [0] * 4, 3)\np.next()\n" + ending)
    done = subprocess.run([sys.executable, "-c", script], timeout=100, capture_output=True, text=True, check=False)
    assert done.returncode == {"": 0, "raise SystemExit(3)": 3}.get(ending, 1)
    assert "Fatal" not in done.stderr


@pytest.mark.parametrize("n_threads", [0, 1, 3])
def test_a_child_goes_on_with_the_batch_that_the_parent_is_at(forked, n_threads):
    """Also where batches are under way at the fork, whose threads the child has not."""
    prefetcher = Prefetcher(itertools.count(), fill, [np.zeros(1) for _ in range(4)], n_threads)

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

    prefetcher = Prefetcher(itertools.count(), fill, [np.zeros(1) for _ in range(4)], 2)
    threading.Thread(target=prefetcher.next, daemon=True).start()
    begun.wait(60)
    assert forked(lambda: [float(prefetcher.next()[0]) for _ in range(6)]) == [0, 1, 2, 3, 4, 5]
    go_on.set()


def test_a_child_may_close_or_leave_what_it_inherited(forked):
    prefetcher = Prefetcher(itertools.count(), fill, [np.zeros(1) for _ in range(3)], 2)
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
    prefetcher = Prefetcher(itertools.count(), fill, [np.zeros(3)] * 2, 5)
    with pytest.raises(UserError, match="thread 'reader-2' cannot start"):
        prefetcher.next()
    assert new_threads("reader") == []
