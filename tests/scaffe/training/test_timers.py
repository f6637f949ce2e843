"""Where a run's time goes, on a clock of the test's own; what is compiled meanwhile counts as compiling."""

from __future__ import annotations

import numba
import pytest

from scaffe.jit import cache
from scaffe.training import timers
from scaffe.training.timers import Timers


@pytest.fixture
def at(monkeypatch):
    """Sets the time."""
    now = [0.0]
    monkeypatch.setattr(timers.time, "perf_counter", lambda: now[0])

    def set_to(seconds):
        now[0] = seconds

    return set_to


@pytest.fixture
def compiles(monkeypatch):
    """Lets the process have compiled between two times."""
    monkeypatch.setattr(cache._clock, "spans", [])
    return lambda *span: cache._clock.spans.append(span)


def test_inner_activities_and_compiling_are_taken_off_the_outer_ones(at, compiles):
    seen = Timers()
    with seen("forward"):
        at(10)
        with seen("communication"):
            compiles(11, 14)
            at(20)
        compiles(22, 23)
        at(30)
    assert seen.seconds == {"communication": 7, "compiling": 4, "forward": 19}


def test_only_what_lies_within_counts(at, compiles):
    compiles(0, 3)
    at(2)
    seen = Timers()
    with seen("update"):
        at(5)
    assert seen.seconds == {"compiling": 1, "update": 2}


def test_data_waits_and_the_helpers_seconds_are_without_compiling(at, compiles):
    class Net:
        data_seconds = 1.0

    seen = Timers()
    with seen.forward(Net):
        compiles(0, 4)
        at(10)
        Net.data_seconds += 2  # as the net counts it, compiling left out
    assert seen.seconds == {"forward": 4, "compiling": 4, "data": 2}
    compiles(12, 18)
    seen.carried("reduce a", 11, 21, 1)
    assert (seen.behind, seen.waited) == (4, 1)


def test_numba_tells_when_it_compiles_and_not_what_is_compiled_already(compiles):
    @numba.njit
    def inner(x):
        return x + 1

    @numba.njit
    def outer(x):
        return inner(x)

    for n_spans, call in ((1, lambda: outer(1)), (1, lambda: outer(2)), (2, lambda: outer(1.5))):
        call()
        assert len(cache._clock.spans) == n_spans  # inner's is within outer's
    assert all(started < ended for started, ended in cache._clock.spans)
    assert cache.compiling_seconds(float("-inf"), float("inf")) == pytest.approx(
        sum(ended - started for started, ended in cache._clock.spans))
