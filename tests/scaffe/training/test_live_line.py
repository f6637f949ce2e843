"""The live line of a run: on the terminal behind mpirun, cut to its width, and in no file."""

import os
import pty
import re
import signal
import subprocess
import sys
import termios

import pytest

from scaffe.live_line import ERASE, LiveLine
from tests.mpirun import MPIRUN, mpirun
from tests.scaffe.runs import ROOT, write_solver

NET = """
layer { name: "d" type: "DummyData" top: "data" top: "label" dummy_data_param { shape { dim: 8 dim: 20 }
  shape { dim: 8 } data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
LINE = re.compile(rb"\r\x1b\[Kiteration (\d+)/1000000000  loss [0-9.e+-]+  \d+ images/s  \d+:\d\d left\r")
TRAIN = [sys.executable, "-m", "scaffe", "train", "-solver", "solver.prototxt", "-threads", "1", "-log_dir", "."]
CONTROL = re.compile(rb"[\x1b\r]")


@pytest.fixture
def terminal():
    """A terminal of 200 columns: its two ends."""
    user, program = pty.openpty()
    termios.tcsetwinsize(program, (24, 200))
    yield user, program
    os.close(user)


def start(folder, words, terminal, stderr=None):
    """A run on the terminal's program end, which nobody else keeps open."""
    write_solver(folder, NET, test_iter=None, test_interval=0, max_iter=10**9, display=10**6)
    environment = os.environ | {"TERM": "xterm", "MPIRUN": MPIRUN}
    process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=terminal[1],
                               stderr=stderr or terminal[1], env=environment, start_new_session=True)
    os.close(terminal[1])
    return process


def read(user, until=None):
    """What the terminal shows, until a pattern comes twice; without one, until the last writer has gone."""
    shown = b""
    while until is None or len(until.findall(shown)) < 2:
        try:
            shown += (part := os.read(user, 4096))
        except OSError:  # nobody has its other end open
            part = b""
        if not part:
            assert until is None, shown.decode()
            return shown
    return shown


def stop(process):
    """A snapshot and the end, as a signal asks for it."""
    process.send_signal(signal.SIGUSR1)


@pytest.mark.mpi_job
def test_it_is_on_the_terminal_behind_mpirun_and_not_in_the_log(tmp_path, terminal):
    process = start(tmp_path, [*mpirun(2), *TRAIN], terminal)
    try:
        shown = read(terminal[0], LINE)
        stop(process)
        shown += read(terminal[0])
        assert process.wait(60) == 0
    finally:
        process.kill()
    iterations = [int(number) for number in LINE.findall(shown)]
    assert iterations == sorted(iterations)
    assert b"Summary: " in shown
    log = (tmp_path / "caffe.INFO").read_bytes()
    assert b"Summary: " in log
    assert not CONTROL.search(log)


@pytest.mark.mpi_job
def test_a_launcher_whose_output_is_kept_shows_none(tmp_path, terminal):
    """Neither there, though the launcher was started from a terminal, nor over what the user does on it meanwhile."""
    process = start(tmp_path, [ROOT / "jobs/mpirun.sh", *mpirun(2)[1:], *TRAIN], terminal, stderr=subprocess.PIPE)
    try:
        kept = b""
        for line in process.stderr:
            kept += line
            if b"Training on 2 rank" in line:
                stop(process)
        assert process.wait(60) == 0
    finally:
        process.terminate()
        process.stderr.close()
    assert b"Summary: " in kept
    assert not CONTROL.search(kept)
    assert not CONTROL.search(read(terminal[0]))


def test_without_a_launcher_it_is_on_standard_error(tmp_path, terminal):
    process = start(tmp_path, TRAIN, terminal)
    try:
        shown = read(terminal[0], LINE)
        stop(process)
        shown += read(terminal[0])
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert not re.search(rb"left\r+I\d{4}", shown), "a log line over a live one that was not erased"


def test_it_is_cut_to_the_terminals_width(terminal):
    user, program = terminal
    termios.tcsetwinsize(program, (24, 11))
    line = LiveLine(program)
    line.show("0123456789abcdef")
    assert os.read(user, 100).decode() == f"{ERASE}0123456789\r"
    line.clear()
    assert os.read(user, 100).decode() == ERASE
    line.show("not so soon after a line of the log")
    os.write(program, b"next")
    assert os.read(user, 100) == b"next"
    os.close(program)
