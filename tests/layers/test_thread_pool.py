"""Threads on which kernels' parts run: OpenMP's, and Python's where there are none of those."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.cpu.threads.parts import OpenmpThreads, PythonThreads, in_ranges, set_parts

N_THREADS = 3
KINDS = [pytest.param(OpenmpThreads, marks=pytest.mark.skipif(library() is None, reason="no oneDNN")), PythonThreads]


@pytest.fixture(params=KINDS)
def team(request):
    return request.param(N_THREADS)


def test_every_thread_of_a_team_works_once_the_callers_among_them(team):
    together, seen = threading.Barrier(N_THREADS, timeout=60), []

    def work():
        together.wait()
        seen.append(threading.get_ident())

    for _ in range(2):
        team.run(work)
    assert len(seen) == 2 * N_THREADS
    assert set(seen[:N_THREADS]) == set(seen[N_THREADS:])
    assert threading.get_ident() in seen


def test_what_a_thread_raises_is_raised_when_all_are_done(team):
    together, done = threading.Barrier(N_THREADS, timeout=60), []

    def work():
        place = together.wait()
        if place == 0:
            raise KeyError("from one of them")
        done.append(place)

    with pytest.raises(KeyError, match="from one of them"):
        team.run(work)
    assert sorted(done) == [1, 2]


def test_teams_of_several_threads_at_once_do_their_own_work(team):
    def of_one(caller):
        seen = []
        for turn in range(50):
            team.run(lambda turn=turn: seen.append((caller, turn)))
        return seen

    with ThreadPoolExecutor(4) as callers:
        for caller, seen in enumerate(callers.map(of_one, range(4))):
            assert sorted(seen) == sorted([(caller, turn) for turn in range(50)] * N_THREADS)


def test_ranges_go_on_after_one_that_failed():
    set_parts(N_THREADS)
    try:
        with pytest.raises(ZeroDivisionError):
            in_ranges(30, lambda start, stop: 1 // start)
        seen = []
        in_ranges(31, lambda start, stop: seen.append((start, stop)))
        assert sorted(seen) == [(0, 10), (10, 20), (20, 31)]
    finally:
        set_parts(1)


SIGNALLED = """
import os, signal, threading
from scaffe.layers.kernels.cpu.threads.parts import thread_pool
seen = []
signal.signal(signal.SIGUSR1, lambda *of: seen.append(threading.current_thread() is threading.main_thread()))
group = thread_pool(2)
def work():
    if threading.current_thread() is threading.main_thread():
        os.kill(os.getpid(), signal.SIGUSR1)
for _ in range(20):
    group.run(work)
print(len(seen) > 0 and all(seen))
"""


def test_a_signal_that_comes_while_a_team_works_is_handled():
    ran = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr


@pytest.fixture
def interruptible():
    """Where the tests run in the background the shell has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_the_interrupt_key_ends_work_of_a_team(team):
    def work():
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        team.run(work)
        team.run(lambda: None)
