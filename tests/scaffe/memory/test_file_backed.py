"""Memory that a file backs: made in turn it lies as a flat buffer, and is there whole for whoever looks."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from scaffe.errors import UserError
from scaffe.layers.base.blob import Blob
from scaffe.mapped_memory import HUGE_BYTES, PAGE_BYTES, inner
from scaffe.memory.backing import file_backed
from scaffe.memory.backing.file_backed import FileBackedMemory
from scaffe.memory.backing.spill_file import SpillFile
from scaffe.nets.flat_params import FlatParams, Param

SINGLE = np.dtype(np.float32)


@pytest.fixture
def backed(tmp_path):
    made = FileBackedMemory(SpillFile(str(tmp_path)))
    yield made
    made.file.close()


def blobs(memory, lengths, rng):
    found = []
    for n_elems in lengths:
        found.append(Blob((n_elems,), SINGLE, False, memory.zeros))
        found[-1].data[...] = rng.random(n_elems, np.float32)
    return found


def own_bytes(name):
    """A number of this process from the system: what it has in memory of files, or of its own."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def test_what_is_made_in_turn_is_the_flat_buffer(backed):
    made = blobs(backed, [5, 3 * PAGE_BYTES, 1, 16, 700_000], np.random.default_rng(0))
    values, places = [blob.data.copy() for blob in made], [blob.data_flat.ctypes.data for blob in made]
    params = FlatParams([Param(i, blob) for i, blob in enumerate(made)], SINGLE, memory=backed)
    assert [blob.data_flat.ctypes.data for blob in made] == places  # nothing was copied
    for value, place, blob in zip(values, params.slices, made, strict=True):
        np.testing.assert_array_equal(params.data[place], value)
        assert np.shares_memory(params.data, blob.data) and np.shares_memory(params.diff, blob.diff)
    assert not params.diff.any()


def test_what_is_not_made_in_turn_is_copied(backed):
    made = blobs(backed, [5, 9000, 70], np.random.default_rng(0))
    values = [blob.data.copy() for blob in made]
    params = FlatParams([Param(0, made[0]), Param(1, made[2])], SINGLE, memory=backed)
    np.testing.assert_array_equal(params.data[params.slices[0]], values[0])
    np.testing.assert_array_equal(params.data[params.slices[1]], values[2])
    np.testing.assert_array_equal(made[1].data, values[1])


def test_what_is_made_leaves_memory_when_the_next_is(backed):
    before = own_bytes("RssFile")
    for _ in range(6):
        backed.zeros(8 * HUGE_BYTES // 4, SINGLE)[...] = 1
    assert own_bytes("RssFile") - before < 12 * HUGE_BYTES


def test_arrays_are_kept_hidden_and_shown(backed):
    whole = backed.zeros(40 * PAGE_BYTES, SINGLE)
    whole[...] = np.arange(whole.size)
    expected = whole.copy()
    part = inner(whole.view(np.uint8)[100:50 * PAGE_BYTES + 7])
    other = inner(whole.view(np.uint8)[60 * PAGE_BYTES:90 * PAGE_BYTES])
    backed.keep(whole, [other, part])
    np.testing.assert_array_equal(whole, expected)
    backed.hide(part)
    assert not part.any()
    os.posix_fadvise(backed.file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    buffer = part.copy()
    backed.file.read(part, backed.offset(part))
    assert part.tobytes() != buffer.tobytes()
    np.testing.assert_array_equal(whole, expected)
    part[...] = 7
    backed.file.write(part, backed.offset(part))
    backed.hide(part)
    backed.show(part)
    assert (part == 7).all()
    part[...] = 9  # as one who loads weights does
    backed.hide(part)
    backed.file.read(part, backed.offset(part))
    assert (part == 9).all()
    whole.view(np.uint8)[:100] = 1  # kept, so that the file does not see it
    backed.show(part)
    assert (part == 9).all() and (whole.view(np.uint8)[:100] == 1).all()


def test_a_disk_that_is_too_small_is_a_line(backed):
    with pytest.raises(UserError, match=r"bytes are needed, the disk has [\d,]+ free"):
        backed.zeros(backed.file.free_bytes // 4 + HUGE_BYTES, SINGLE)


def addresses():
    return own_bytes("VmSize")


def test_addresses_follow_what_is_made_not_what_the_disk_has_free(tmp_path, monkeypatch):
    """Ninety terabytes, as parallel file systems have."""
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=90 << 30, f_frsize=1 << 10))
    before = addresses()
    memories = [FileBackedMemory(SpillFile(str(tmp_path))) for _ in range(4)]
    for number, memory in enumerate(memories):
        memory.zeros(1000, SINGLE)[...] = number
    assert memories[0].file.free_bytes > 80 << 40
    assert addresses() - before < 1 << 30
    for memory in memories:
        memory.file.close()


def test_pieces_in_several_windows_are_one_flat_buffer_without_a_copy(backed, monkeypatch):
    """It shows the part of the file that they show: what is written at one address is there at the other."""
    monkeypatch.setattr(file_backed, "LEAST_BYTES", HUGE_BYTES)
    made = blobs(backed, [700_000, 5, 3 * HUGE_BYTES // 4, 1, 900_000], np.random.default_rng(0))
    values, before = [blob.data.copy() for blob in made], [blob.data_flat for blob in made]
    length = backed.n_bytes
    params = FlatParams([Param(i, blob) for i, blob in enumerate(made)], SINGLE, memory=backed)
    assert backed.n_bytes == length and params.data.ctypes.data not in [each.ctypes.data for each in before]
    for value, place, old in zip(values, params.slices, before, strict=True):
        np.testing.assert_array_equal(params.data[place], value)
        params.data[place] += 1
        np.testing.assert_array_equal(old, value + 1)
    backed.keep(params.data)
    pages = backed.pages(3 * HUGE_BYTES)
    pages[...] = 7
    assert backed.offset(pages) >= length
    for value, place in zip(values, params.slices, strict=True):
        np.testing.assert_array_equal(params.data[place], value + 1)
    size = addresses()
    del before, old
    assert addresses() <= size - 3 * HUGE_BYTES  # the first windows went with who looked at them


LIMITED = """
import resource, sys
import numpy as np
from scaffe.errors import UserError
from scaffe.memory.backing.file_backed import FileBackedMemory
from scaffe.memory.backing.spill_file import SpillFile
backed = FileBackedMemory(SpillFile(sys.argv[1]))
backed.file.reserve = lambda n_bytes: None
used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20),) * 2)
backed.zeros(5 << 20, np.float32)[...]  # 20 MiB, where no window of 64 has room
try:
    backed.zeros(10 << 20, np.float32)
except UserError as error:
    print(error)
"""


def test_a_limit_of_addresses_is_a_line_with_what_is_needed(tmp_path):
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, timeout=60)
    assert re.fullmatch(r"limited memory \(-memory\): [\d,]+ bytes of addresses more are needed: the limit is [\d,]+ "
                        r"\(ulimit -v\), and [\d,]+ are in use\n", done.stdout), done.stderr
    needed, limit, used = (int(word.replace(",", "")) for word in re.findall(r"\d[\d,]+", done.stdout))
    assert needed == (40 << 20) + HUGE_BYTES and limit - needed < used < limit
