"""Work done ahead by several threads gives what one thread gives, one item after another."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from scaffe.data.convert import ahead
from scaffe.data.convert.ahead import map_ahead


def slowly_squared(item):
    time.sleep(random.random() / 500)
    return item * item


@pytest.mark.parametrize("n_items", [0, 1, 7, 60])
@pytest.mark.parametrize(("n_threads", "least", "most"), [(1, 1, 0), (2, 4, 100), (5, 3, 10), (8, 16, 0)])
def test_results_come_in_order(n_items, n_threads, least, most):
    with ThreadPoolExecutor(n_threads) as pool:
        assert list(map_ahead(pool, slowly_squared, iter(range(n_items)), least, most)) == [
            item * item for item in range(n_items)]


@pytest.mark.parametrize(("least", "most", "n_bytes", "expected"), [
    (3, 0, 0, 3), (3, 20, 0, 20), (3, 20, 1 << 10, 20), (3, 20, 100 << 10, 10), (3, 20, 1 << 30, 3), (1, 1, 0, 1)])
def test_no_more_is_ahead_than_there_is_room_for(monkeypatch, least, most, n_bytes, expected):
    """Items that are taken and whose results the caller has not had, but for the one that it works on."""
    monkeypatch.setattr(ahead, "AHEAD_BYTES", 1000 << 10)
    taken, most_ahead = [], 0
    items = (taken.append(item) or item for item in range(100))
    with ThreadPoolExecutor(2) as pool:
        for done, _ in enumerate(map_ahead(pool, slowly_squared, items, least, most, lambda result: n_bytes), 1):
            most_ahead = max(most_ahead, len(taken) - done)
    assert (most_ahead, len(taken)) == (expected, 100)


def test_the_largest_result_so_far_counts(monkeypatch):
    monkeypatch.setattr(ahead, "AHEAD_BYTES", 100)
    taken = []
    items = (taken.append(item) or item for item in range(50))
    with ThreadPoolExecutor(2) as pool:
        results = map_ahead(pool, lambda item: item, items, 2, 40, lambda item: 50 if item == 3 else 1)
        ahead_of = [len(taken) - done for done, _ in enumerate(results, 1)]
    assert ahead_of[:3] == [40, 40, 40] and ahead_of[-9:] == [2, 2, 2, 2, 2, 2, 2, 1, 0]


def test_an_error_is_raised_in_its_place():
    def fails(item):
        if item in (5, 3):
            raise ValueError(item)
        return item

    seen = []
    with ThreadPoolExecutor(4) as pool, pytest.raises(ValueError, match="^3$"):
        for item in map_ahead(pool, fails, iter(range(9)), 8):
            seen.append(item)
    assert seen == [0, 1, 2]


def test_all_threads_work_at_once_while_the_caller_does():
    meeting = threading.Barrier(12, timeout=20)
    with ThreadPoolExecutor(12) as pool:
        assert sum(1 for _ in map_ahead(pool, lambda _: meeting.wait(), iter(range(36)), 24)) == 36
