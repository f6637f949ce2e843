"""Threads add to what the pretend device keeps while others list it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TypeVar

import pytest

from tests.pretend import contexts, pool
from tests.pretend.memory import Memory
from tests.pretend.registry import Registry

pytestmark = pytest.mark.usefixtures("hasty")
T = TypeVar("T")


class Thing:
    """What a registry can hold."""


def while_another(churn: Callable[[int], object], look: Callable[[], T], n_times: int) -> list[T]:
    """What is seen in so many looks, while another thread calls ``churn(0)``, ``churn(1)``, ..."""
    stop = threading.Event()

    def run() -> None:
        for turn in count():
            if stop.is_set():
                return
            churn(turn)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        return [look() for _ in range(n_times)]
    finally:
        stop.set()
        thread.join()


def test_what_is_alive_is_listed_while_another_thread_adds_and_drops() -> None:
    registry: Registry[Thing] = Registry()
    kept = [Thing() for _ in range(500)]
    registry.update(enumerate(kept))
    def churn(turn: int) -> None:
        things = [Thing() for _ in range(50)]
        registry.update(enumerate(things, 1000 + 50 * turn))

    listed = while_another(churn, registry.alive, 300)
    assert all(set(map(id, kept)) <= set(map(id, found)) for found in listed)
    del listed
    assert {id(thing) for thing in registry.alive()} == set(map(id, kept))


def test_devices_are_listed_while_threads_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "made", {(0, f"thread {number}") for number in range(10_000)})

    def begin(turn: int) -> None:
        contexts.made.add((1, f"another {turn % 1000}"))
        if turn % 1000 == 999:
            contexts.made.difference_update([(1, f"another {number}") for number in range(1000)])

    seen = while_another(begin, contexts.devices, 100)
    assert all({0} <= devices <= {0, 1} for devices in seen)


def test_free_blocks_are_given_back_while_another_thread_takes_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_left", deque(maxlen=9))
    mine = pool.Pool()

    def take(n_bytes: int) -> None:
        Memory(1 + n_bytes % 10_000, mine)  # given back at once

    def look() -> None:
        for n_bytes in range(3000):
            take(n_bytes)
        mine.free_all_blocks()

    while_another(take, look, 5)
    mine.free_all_blocks()
    assert mine.n_free_blocks() == 0
