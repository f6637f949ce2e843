"""Memory that a file backs: made in turn it lies as a flat buffer, and is there whole for whoever looks."""

import os
from pathlib import Path

import numpy as np
import pytest

from scaffe.errors import UserError
from scaffe.layers.base.blob import Blob
from scaffe.nets.flat_params import FlatParams, Param
from scaffe.nets.memory.tier.backed import BackedMemory
from scaffe.nets.memory.tier.mapping import HUGE_BYTES, PAGE_BYTES, inner
from scaffe.nets.memory.tier.spill_file import SpillFile

SINGLE = np.dtype(np.float32)


@pytest.fixture
def backed(tmp_path):
    made = BackedMemory(SpillFile(str(tmp_path)))
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
