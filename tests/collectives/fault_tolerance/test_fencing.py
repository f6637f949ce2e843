"""Stopped ranks are ended by the others of their machine, and only those; the clock of who waits stops with him."""

import os
import signal
import subprocess
import sys
import time

import pytest

from scaffe.collectives.fault_tolerance import fencing
from scaffe.collectives.fault_tolerance.fencing import LONGEST_SECONDS, SuspendAwareClock, SuspendedProcesses


def test_whoever_is_stopped_at_each_look_for_longer_than_the_deadline_is_told():
    stopped = SuspendedProcesses()
    for now in (0, 1, 2, 3):
        assert stopped.look(now, [7], 3, 1.5) == []
    assert stopped.look(3.5, [7, 8], 3, 1.5) == [7]
    assert stopped.look(4.5, [8], 3, 1.5) == []  # 7 runs again
    assert stopped.look(5.5, [7, 8], 3, 1.5) == []
    assert stopped.look(6.6, [7, 8], 3, 1.5) == [8]


def test_a_job_that_was_put_to_sleep_as_a_whole_wakes_up_whole():
    stopped = SuspendedProcesses()
    assert stopped.look(0, [1, 2], 3, 1.5) == []
    assert stopped.look(3600, [1, 2], 3, 1.5) == []  # this process was stopped too; those have not woken up yet
    assert stopped.look(3601, [2], 3, 1.5) == []
    assert stopped.look(3602, [2], 3, 1.5) == []
    assert stopped.look(3603.2, [2], 3, 1.5) == [2]


def test_time_in_which_nobody_looked_does_not_count():
    times = iter([10.0, 11.0, 14.0, 5000.0, 5001.0])
    clock = SuspendAwareClock(lambda: next(times))
    assert [clock.seconds() for _ in range(4)] == [1.0, 4.0, 4.0 + LONGEST_SECONDS, 5.0 + LONGEST_SECONDS]


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def seen_as(pid):
    return fencing.Process(("machine", "container"), pid, fencing._stat(pid)[19], 3)


def wait_for_state(process, state):
    until = time.monotonic() + 30
    while fencing.state_of(process) != state and time.monotonic() < until:
        time.sleep(0.001)
    assert fencing.state_of(process) == state


def test_a_stopped_process_dies_and_runs_nothing_more(child, capfd):
    process = seen_as(child.pid)
    fencing.end(process, 2)
    assert child.poll() is None  # it runs
    os.kill(child.pid, signal.SIGSTOP)
    wait_for_state(process, "T")
    fencing.end(process._replace(start="1"), 2)  # a process that has got the number of one which is gone
    assert fencing.state_of(process) == "T"
    fencing.end(process, 2)
    assert child.wait(30) == -signal.SIGKILL
    assert capfd.readouterr().err == (f"rank 3 of the job (process {child.pid}) was stopped for more than 2 s: it "
                                      "counts as lost, and was ended\n")
    assert fencing.state_of(process) == ""
