"""Tables in a file: of what is gone through little is in memory, and a disk without room for them is one line."""

import errno
import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from scaffe import mapped_files
from scaffe.collectives import CommError, Communicator
from scaffe.collectives.server import ParameterServer
from scaffe.collectives.server.memory.common import RESIDENT_BYTES

N_ELEMS = 6 << 20  # 24 MiB of float32


class Momentum:
    """h <- 0.5 h + u, v <- v - h; all numbers are exact."""

    n_histories, merges = 1, False

    def __init__(self, folder):
        self.folder = folder

    def step(self, values, update, histories, first, settings):
        histories[0][:] = np.float32(0.5) * histories[0] + update
        values -= histories[0]
        assert resident(self.folder) <= 4 * RESIDENT_BYTES  # three here, one of the worker's


def resident(folder):
    """Bytes of files without a name in a folder that this process has in its memory."""
    text = Path("/proc/self/smaps").read_text()
    found = re.findall(re.escape(str(folder)) + r"/#\d+ \(deleted\)\n(?:(?!Rss:).*\n)*Rss: +(\d+) kB", text)
    assert found
    return sum(map(int, found)) << 10


@pytest.mark.parametrize("slack", [0, pytest.param(2, marks=pytest.mark.thorough)])
def test_little_of_a_table_is_in_memory(tmp_path, slack):
    server = ParameterServer(Communicator.single(), slack, folder=str(tmp_path))
    batch = server.batch(table := server.table("t", 1, N_ELEMS, Momentum(tmp_path)), range(1))
    server.start({"t": np.arange(N_ELEMS, dtype=np.float32) % 64})
    assert resident(tmp_path) <= RESIDENT_BYTES and not any(tmp_path.iterdir())
    seen = np.empty(N_ELEMS, np.float32)
    for _ in range(2):
        rows = batch.read()[0]
        for chunk in batch.chunks(rows):
            seen[chunk] = rows[chunk]
        batch.post_read()
        assert resident(tmp_path) <= RESIDENT_BYTES
        pushed = batch.pre_update()[0]
        for chunk in batch.chunks(pushed):
            pushed[chunk] = 2
        batch.update()
        server.clock()
    server.close()
    np.testing.assert_array_equal(seen, np.arange(N_ELEMS) % 64 - 2)
    np.testing.assert_array_equal(server.values(table)[0], np.arange(N_ELEMS) % 64 - 5)
    np.testing.assert_array_equal(server.histories(table)[1][0], 3)


def test_what_is_read_whole_leaves_when_the_iteration_ends(tmp_path):
    server = ParameterServer(Communicator.single(), folder=str(tmp_path))
    batch = server.batch(server.table("t", 1, N_ELEMS), range(1))
    server.start()
    assert batch.read().sum() == 0 and resident(tmp_path) >= 4 * N_ELEMS
    batch.post_read()
    server.clock()
    assert resident(tmp_path) <= RESIDENT_BYTES
    server.close()


def test_no_room_and_no_folder_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=1000, f_frsize=1000))
    for folder, words in ((tmp_path, r"[\d,]+ bytes are needed: the disk has 1,000,000 free"),
                          (tmp_path / "none", "No such file or directory")):
        server = ParameterServer(Communicator.single(), folder=str(folder))
        server.table("t", 1, N_ELEMS)
        with pytest.raises(CommError, match=f"cannot share memory: folder {folder}: {words}") as raised:
            server.start()
        assert raised.value.everywhere and "\n" not in str(raised.value)


def test_a_batch_on_a_device_is_refused(tmp_path):
    server = ParameterServer(Communicator.single(), folder=str(tmp_path))
    with pytest.raises(CommError, match="with tables in a file has no batch in device memory"):
        server.batch(server.table("t", 1, 9), range(1), "device")


def failing(monkeypatch, after):
    """Asked so often after its disk has failed, the system says so: once."""
    asked = iter([*[None] * after, OSError(errno.EIO, "Input/output error")])

    def ask(_):
        if (error := next(asked, None)) is not None:
            raise error

    monkeypatch.setattr(mapped_files, "ask", ask)


def started(tmp_path):
    server = ParameterServer(Communicator.single(), folder=str(tmp_path))
    batch = server.batch(server.table("t", 1, 9), range(1))
    server.start()
    return server, batch


def test_a_disk_that_fails_later_ends_the_iteration_with_a_line_and_is_not_forgotten(tmp_path, monkeypatch):
    failing(monkeypatch, 1)
    server, _ = started(tmp_path)
    line = f"folder {tmp_path}: a parameter server's tables were not written: Input/output error"
    server.clock()
    for call, everywhere in ((server.clock, False), (server.check_disks, True), (server.check_disks, True)):
        with pytest.raises(CommError) as raised:
            call()
        assert (str(raised.value), raised.value.everywhere) == (line, everywhere)
    server.close()


def test_a_disk_that_writes_everything_is_asked_and_says_nothing(tmp_path):
    server, batch = started(tmp_path)
    batch.pre_update()[:] = 1
    batch.update()
    server.clock()
    server.check_disks()
    server.close()


def test_where_writing_alone_cannot_be_asked_about_everything_is_written(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(mapped_files, "_sync_file_range", None)
    monkeypatch.setattr(os, "fdatasync", written.append)
    server, _ = started(tmp_path)
    server.check_disks()
    assert written == [server._running.store.tier._written._descriptor]
    server.close()
