"""The helper thread's polling interval, on a clock of the test's own."""

from __future__ import annotations

import pytest

from scaffe.collectives.transport import transport


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(transport.time, "perf_counter", lambda: now[0])
    return now


def after(clock, seconds, n_done, n_open=1):
    """The interval `seconds` after a collective began of which n_done messages are done."""
    backoff = transport.PollBackoff()
    for _ in range(n_done + n_open):
        backoff.start()
    for _ in range(n_done):
        backoff.done()
    clock[0] += seconds
    return backoff.seconds()


@pytest.mark.parametrize(("seconds", "n_done", "interval"), [
    (16e-3, 0, 1e-3),         # a sixteenth of what the collective has taken
    (1.0, 0, 2e-3),           # 2 ms at most
    (0.4e-3, 0, 50e-6),       # 50 us at least
    (30e-6, 0, 30e-6),        # but not longer than the collective has taken
    (20e-6, 0, 0),            # which the kernel could not keep
    (4e-3, 99, 160e-6),       # four of a hundred messages' time
    (4e-3, 999, 0),
    (16e-3, 3, 1e-3),
])
def test_intervals(clock, seconds, n_done, interval):
    assert after(clock, seconds, n_done) == pytest.approx(interval)


def test_another_collective_begins_when_all_messages_are_done(clock):
    backoff = transport.PollBackoff()
    for _ in range(50):
        backoff.start(), backoff.done()
    clock[0] += 7.0
    backoff.start()
    clock[0] += 16e-3
    backoff.start()
    assert backoff.seconds() == pytest.approx(1e-3)


def test_a_message_is_polled_until_it_is_done(monkeypatch):
    class Request:
        n_polls = n_started = 0

        def Start(self):
            self.n_started += 1

        def Test(self):
            self.n_polls += 1
            return self.n_polls == 4

        def Free(self):
            pass

    slept, request = [], Request()
    monkeypatch.setattr(transport.time, "sleep", slept.append)
    message = transport.PolledMessage(request, transport.PollBackoff())
    message.Start()
    message.Wait()
    assert (request.n_started, request.n_polls, len(slept)) == (1, 4, 3)
