"""What a non-blocking call returns."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scaffe.collectives import request as module
from scaffe.collectives.errors import CommError
from scaffe.collectives.request import Request


class Point:
    """A point in a device's order that notes who follows it."""

    def __init__(self):
        self.followers = []

    def hold(self, stream):
        self.followers.append(stream)


def test_times_of_a_request(monkeypatch):
    monkeypatch.setattr(module.time, "perf_counter", lambda: 17.0)
    request = Request("r")
    assert (request.test(), request.started, request.ended) == (False, 0.0, 0.0)
    request.finish()
    assert (request.test(), request.started, request.ended) == (True, 0.0, 17.0)


def test_waiting_too_long_names_the_peer():
    with pytest.raises(CommError, match=r"^rank 1: ireduce: not complete after 0\.01 s, waiting for rank 0$"):
        Request("rank 1: ireduce", lambda: ", waiting for rank 0").wait(timeout=0.01)


def test_what_the_collective_raised_is_raised_by_wait_and_test():
    request = Request("r")
    request.finish(CommError("lost"))
    for look in (request.wait, request.test):
        with pytest.raises(CommError, match="lost"):
            look()


def test_the_given_stream_follows_the_result():
    point = Point()
    Request.completed("r", point).wait(stream=5)
    assert point.followers == [5]


def test_callbacks_come_once_when_the_collective_is_complete():
    request, seen = Request("r"), []
    request.add_done_callback(lambda done: seen.append((1, done.test())))
    request.add_done_callback(lambda done: seen.append((2, done is request)))
    assert seen == []
    request.finish()
    assert seen == [(1, True), (2, True)]
    request.add_done_callback(lambda done: seen.append((3, done.test())))
    assert seen[2:] == [(3, True)]


def test_callbacks_learn_of_failures():
    request, seen = Request("r"), []
    request.add_done_callback(lambda done: seen.append(pytest.raises(CommError, done.test).value))
    request.finish(CommError("lost"))
    assert [str(error) for error in seen] == ["lost"]


AT_THE_END = """
import atexit, threading
from scaffe.collectives.runtime.helper_threads import ProgressThread
go_on = threading.Event()
progress = ProgressThread()
request = progress.submit("r", go_on.wait)
request.add_done_callback(lambda done: print("called back", flush=True))
atexit.register(go_on.set)  # the last one that is registered is the first one that runs
"""


def test_a_program_that_ends_lets_callbacks_return():
    result = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "called back\n", "")
