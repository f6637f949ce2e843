"""How long a device computes steps: in recordings, where it never waits for the host, if they were recorded."""

import pytest

from scaffe.layers.kernels import device, driver
from scaffe.memory.backing.device_clock import DeviceClock
from tests import pretend
from tests.pretend import queue

pytestmark = pretend.needs_compiler
TAKES, GAP = {0: 3.0, 1: 5.0, 2: 7.0}, 100.0  # milliseconds of each step, and what the host takes to queue one


@pytest.fixture
def now(monkeypatch):
    """The device's time, in milliseconds; events tell when the device came to them."""
    pretend.install(monkeypatch)
    device.stream().use()
    found, seen = [0.0], {}
    monkeypatch.setattr(queue.Event, "passed", lambda event: seen.update({event.ptr: found[0]}))
    monkeypatch.setattr(device.load().cuda, "get_elapsed_time", lambda start, end: seen[end.ptr] - seen[start.ptr])
    return found


def work(now, milliseconds):
    def run():
        now[0] += milliseconds
    queue.enqueue(run)


def step_by_step(clock, now, steps=TAKES):
    for step in steps:
        clock.begin(step)
        work(now, GAP)
        work(now, TAKES[step])
        clock.end(step)


def recorded(clock, now, steps=TAKES):
    """What launches the steps: ``end`` is called once more behind that, as a tier's ``after`` does."""
    stream = device.current_stream()
    stream.begin_capture()
    for step in steps:
        clock.begin(step)
        work(now, TAKES[step])
        clock.end(step)
    graph = stream.end_capture()

    def launch():
        work(now, GAP)
        graph.launch()
        for step in steps:
            clock.end(step)
    return launch


def test_a_recording_measures_without_the_hosts_gaps(now):
    clock = DeviceClock()
    step_by_step(clock, now)
    launch = recorded(clock, now)
    launch()
    launch()
    assert clock.seconds == {step: pytest.approx(takes / 1e3) for step, takes in TAKES.items()}


def test_what_is_not_recorded_is_measured_step_by_step(now):
    clock = DeviceClock()
    step_by_step(clock, now)
    launch = recorded(clock, now, [1])
    for _ in range(2):
        step_by_step(clock, now, [0])
        launch()
        step_by_step(clock, now, [2])
    assert clock.seconds == {0: pytest.approx(0.103), 1: pytest.approx(0.005), 2: pytest.approx(0.107)}


def test_steps_of_one_pass_begin_together_and_end_one_after_another(now):
    clock, stream = DeviceClock(), device.current_stream()
    stream.begin_capture()
    clock.begin(0)
    clock.begin(1)
    work(now, 8.0)
    clock.end(0)
    clock.end(1)
    stream.end_capture().launch()
    assert clock.seconds == {0: pytest.approx(0.008), 1: 0.0}


def test_a_recording_that_never_ran_measures_nothing(now):
    clock = DeviceClock()
    step_by_step(clock, now, [0])
    recorded(clock, now)
    assert clock.seconds == {0: pytest.approx(0.103)}


def test_recordings_have_no_events_once_the_times_are_known(now, monkeypatch):
    clock = DeviceClock()
    recorded(clock, now)()
    found = clock.seconds
    monkeypatch.setattr(device, "record_at_launch", lambda *given: pytest.fail("recorded"))
    recorded(clock, now)()
    assert clock.seconds == found


def test_a_driver_that_records_no_events_leaves_what_was_measured_step_by_step(now, monkeypatch):
    monkeypatch.setattr(driver, "library", lambda: object())
    clock = DeviceClock()
    step_by_step(clock, now)
    recorded(clock, now)()
    assert clock.seconds == {step: pytest.approx((GAP + takes) / 1e3) for step, takes in TAKES.items()}
