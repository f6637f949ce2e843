"""Spill files: what is written comes back, nothing is left in the folder, and errors are one line."""

import errno
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from scaffe.errors import UserError
from scaffe.mapped_memory import HUGE_BYTES, MANY_HUGE, PAGE_BYTES, rounded
from scaffe.memory.backing import speeds
from scaffe.memory.backing.pages import Pages
from scaffe.memory.backing.spill_file import SpillFile
from scaffe.memory.problem.iteration import Bandwidth


def filled(lengths):
    pages = Pages([rounded(n) for n in lengths])
    rng = np.random.default_rng(3)
    for number, array in enumerate(pages.arrays):
        pages.take(number)
        array[...] = rng.integers(0, 256, array.nbytes, np.uint8)
    return pages, [array.copy() for array in pages.arrays]


def test_arrays_come_back_from_the_file_and_dropped_ones_are_zero(tmp_path):
    pages, expected = filled([1, PAGE_BYTES, 3 * PAGE_BYTES + 5, MANY_HUGE * HUGE_BYTES + 1])
    file, at = SpillFile(str(tmp_path)), 0
    file.reserve(sum(array.nbytes for array in pages.arrays))
    for number, array in enumerate(pages.arrays):
        file.write(array, at)
        at += array.nbytes
        pages.drop(number)
        assert not array.any()
    assert not any(tmp_path.iterdir())
    at = 0
    for array, values in zip(pages.arrays, expected, strict=True):
        file.read(array, at)
        at += array.nbytes
        np.testing.assert_array_equal(array, values)
    file.close()


def test_a_file_system_without_nameless_files_leaves_nothing_either(tmp_path, monkeypatch):
    """Nor what a process left there that was killed in the moment in which the file had a name."""
    done = subprocess.run([sys.executable, "-c", "import os; from pathlib import Path; from scaffe import temporary; "
                           f"temporary.make_file(Path({str(tmp_path)!r}) / 'scaffe-spill'); os.kill(os.getpid(), 9)"])
    assert done.returncode == -9 and len(list(tmp_path.iterdir())) == 1
    opened = os.open

    def refuse(path, flags, *mode, **given):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return opened(path, flags, *mode, **given)

    monkeypatch.setattr(os, "open", refuse)
    file = SpillFile(str(tmp_path))
    assert not any(tmp_path.iterdir())
    pages, expected = filled([2 * PAGE_BYTES])
    file.reserve(2 * PAGE_BYTES)
    file.write(pages.arrays[0], 0)
    pages.drop(0)
    file.read(pages.arrays[0], 0)
    np.testing.assert_array_equal(pages.arrays[0], expected[0])
    file.close()


def test_a_killed_process_leaves_nothing(tmp_path):
    code = ("import os, signal, sys; from scaffe.memory.backing.spill_file import SpillFile; "
            f"file = SpillFile({str(tmp_path)!r}); file.reserve(1 << 20); os.kill(os.getpid(), signal.SIGKILL)")
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert not any(tmp_path.iterdir())


def test_too_little_space_is_found_before_anything_is_written(tmp_path):
    file = SpillFile(str(tmp_path))
    with pytest.raises(UserError, match=r"-spill .*: [\d,]+ bytes are needed, the disk has [\d,]+ free"):
        file.reserve(1 << 60)
    file.close()


def test_a_quota_is_found_before_anything_is_written(tmp_path, monkeypatch):
    def over(*_):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "posix_fallocate", over)
    file = SpillFile(str(tmp_path))
    with pytest.raises(UserError, match=r"-spill .*: 4,096 bytes are needed: Disk quota exceeded"):
        file.reserve(4096)
    file.close()


def test_a_missing_folder_is_one_line(tmp_path):
    with pytest.raises(UserError, match="there is no such folder"):
        SpillFile(str(tmp_path / "none"))


def test_a_file_that_ends_early_is_an_error(tmp_path):
    pages, _ = filled([PAGE_BYTES])
    file = SpillFile(str(tmp_path))
    with pytest.raises(UserError, match="the file ends before 4,096 bytes were read"):
        file.read(pages.arrays[0], 0)
    file.close()


def test_bandwidth_is_measured_both_ways(tmp_path, monkeypatch):
    monkeypatch.setattr(speeds, "DISK_TRIAL_BYTES", 1 << 20)
    file = SpillFile(str(tmp_path))
    found = speeds.measured(file)
    assert found.out > 0 and found.back > 0
    file.close()


def test_a_disk_is_measured_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    trials = iter([Bandwidth(3e9, 2e9), Bandwidth(5e9, 4e9)])
    monkeypatch.setattr(speeds, "measured", lambda file: next(trials))
    file = SpillFile(str(tmp_path))
    assert [speeds.disk_speed(file) for _ in range(2)] == [Bandwidth(3e9, 2e9)] * 2
    for damaged in ("", "[1]", '{"x": 1}', "{"):
        (tmp_path / "cache/disks.json").write_text(damaged)
        if damaged == "":
            assert speeds.disk_speed(file) == Bandwidth(5e9, 4e9)
        else:
            with pytest.raises(StopIteration):  # a trial that there is none of
                speeds.disk_speed(file)
    file.close()
