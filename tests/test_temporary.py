"""Temporary files: planted ones are not opened, and those of dead processes, and no others, are removed."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from scaffe import temporary
from scaffe.atomic_files import write_whole
from scaffe.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
HOST = socket.gethostname().replace(".", "-")
KILLED = """
import os, signal
from scaffe.atomic_files import replacing
with replacing("run_iter_1.caffemodel", ValueError) as file:
    file.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_in_writing(folder):
    """Leave what a process killed in the middle of a snapshot leaves; returns its path."""
    process = subprocess.run([sys.executable, "-c", KILLED], cwd=folder, env={"PYTHONPATH": str(ROOT)})
    assert process.returncode == -signal.SIGKILL
    left, = folder.glob(".*")
    return left


def test_what_a_killed_process_left_is_removed_at_the_next_start(tmp_path):
    left = killed_in_writing(tmp_path)
    temporary.remove_abandoned(tmp_path, "other")
    assert left.read_bytes() == b""  # or what had reached the disk
    temporary.remove_abandoned(tmp_path, "run")
    assert not list(tmp_path.iterdir())


def test_a_killed_process_is_gone_before_somebody_has_waited_for_it(tmp_path):
    with subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert len(list(tmp_path.iterdir())) == 1
        temporary.remove_abandoned(tmp_path, "run")
        assert not list(tmp_path.iterdir())


def test_and_at_the_next_write_of_the_same_file(tmp_path):
    killed_in_writing(tmp_path)
    write_whole(tmp_path / "run_iter_1.caffemodel", b"whole", UserError)
    assert [path.name for path in tmp_path.iterdir()] == ["run_iter_1.caffemodel"]


def test_what_may_be_in_use_stays(tmp_path):
    dead = killed_in_writing(tmp_path)
    pid = dead.name.split(".")[-3]
    elsewhere = dead.rename(dead.with_name(dead.name.replace(f".{HOST}.", ".another-host.")))
    alive, file = temporary.make_file(tmp_path / "run_iter_2.caffemodel")
    locked = tmp_path / f".run.{HOST}.{pid}.01234567.part"  # of another container with this host's name, say
    names = f".run.{pid}", f".run.{HOST}.{pid}.part", f"run.{HOST}.{pid}.0a1b2c3d.part"
    not_ours = [tmp_path / name for name in names]
    for path in [locked, *not_ours]:
        path.touch()
    with locked.open() as holder, file:
        fcntl.flock(holder, fcntl.LOCK_EX)
        temporary.remove_abandoned(tmp_path, "run")
        assert {*tmp_path.iterdir()} == {elsewhere, alive, locked, *not_ours}
    temporary.remove_abandoned(tmp_path, "run")
    assert {*tmp_path.iterdir()} == {elsewhere, alive, *not_ours}


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "precious").write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda n_bytes: "0" * 8)
    name = f".out.{HOST}.{os.getpid()}.00000000.part"
    (tmp_path / name).symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="out cannot be written: file exists"):
        write_whole(tmp_path / "out", b"new", UserError)
    assert (tmp_path / "precious").read_text() == "mine"


def test_modes_follow_the_umask_and_names_may_be_long(tmp_path):
    before = os.umask(0o027)
    try:
        for name in ("short", "x" * 255, "ü" * 127):
            write_whole(tmp_path / name, b"1", UserError)
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
    assert len(list(tmp_path.iterdir())) == 3
