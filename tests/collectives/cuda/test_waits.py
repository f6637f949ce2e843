"""How threads wait for messages and for the device: asleep, and noticed soon beside threads that run Python."""

import ctypes
import sys
import threading
from types import SimpleNamespace

import pytest

from scaffe.collectives.cuda.messages import message
from scaffe.collectives.cuda.messages.message import wait_until

PR_GET_TIMERSLACK = 30


@pytest.mark.parametrize(("backs_off", "longest"), [(False, 50e-6), (True, 200e-6)])
def test_each_pause_is_twice_the_one_before_and_none_only_yields(monkeypatch, backs_off, longest):
    pauses, answers = [], iter([False] * 9 + [True])
    monkeypatch.setattr(message, "time", SimpleNamespace(sleep=pauses.append))
    wait_until(lambda: next(answers), backs_off)
    assert len(pauses) == 9
    assert pauses[0] == 10e-6
    assert pauses[-1] == longest
    assert all(later == min(2 * before, longest) for before, later in zip(pauses[:-1], pauses[1:], strict=True))


def test_what_is_there_already_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(message, "time", SimpleNamespace(sleep=pytest.fail))
    wait_until(lambda: True, backs_off=False)


@pytest.mark.skipif(sys.platform != "linux", reason="timer slack is Linux's")
def test_a_waiting_threads_sleeps_end_when_they_should():
    found = []

    def waits():
        wait_until(lambda: True, backs_off=True)
        found.append(ctypes.CDLL(None).prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0))
    thread = threading.Thread(target=waits)
    thread.start()
    thread.join()
    assert found == [message.SLACK_NANOSECONDS]
