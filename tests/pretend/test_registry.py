"""Threads add to a registry while others list it."""

from __future__ import annotations

import sys
import threading

import pytest

from tests.pretend.registry import Registry


class Thing:
    """What a registry can hold."""


@pytest.fixture(autouse=True)
def hasty():
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_what_is_alive_is_listed_while_another_thread_adds_and_drops() -> None:
    registry: Registry[Thing] = Registry()
    kept = [Thing() for _ in range(500)]
    registry.update(enumerate(kept))
    stop = threading.Event()

    def churn() -> None:
        place = 1000
        while not stop.is_set():
            things = [Thing() for _ in range(50)]
            registry.update(enumerate(things, place))
            place += 50

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        listed = [registry.alive() for _ in range(300)]
    finally:
        stop.set()
        thread.join()
    assert all(set(map(id, kept)) <= set(map(id, found)) for found in listed)
    del listed
    assert {id(thing) for thing in registry.alive()} == set(map(id, kept))
