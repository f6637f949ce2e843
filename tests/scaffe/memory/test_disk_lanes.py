"""Lanes of moves: every byte once and at its place, several pieces and both ways at once, and seconds shared out."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np
import pytest

from scaffe.errors import UserError
from scaffe.mapped_memory import PAGE_BYTES
from scaffe.memory.backing import spill_file
from scaffe.memory.backing.pages import Pages
from scaffe.memory.backing.spill_file import N_AT_ONCE, DiskLane, DiskLanes, DiskSeconds, SpillFile
from scaffe.memory.backing.store import BACK, OUT

LONG = 20  # seconds after which a test has failed


def lane_of(move, shown=lambda *span: None):
    return DiskLane(move, "lane", nullcontext, shown)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(spill_file, "CHUNK_BYTES", PAGE_BYTES)


@pytest.mark.parametrize("n_pages", [1, 2, 7])
def test_arrays_come_back_through_the_lanes(tmp_path, n_pages):
    pages, rng = Pages([PAGE_BYTES * n for n in (n_pages, 1, 3)]), np.random.default_rng(n_pages)
    file, lanes, spans = SpillFile(str(tmp_path)), None, []
    file.reserve(PAGE_BYTES * (n_pages + 4))
    lanes = DiskLanes(file)
    lanes.record = lambda *span: spans.append(span)
    offsets = [0, PAGE_BYTES * n_pages, PAGE_BYTES * (n_pages + 1)]
    for number, array in enumerate(pages.arrays):
        pages.take(number)
        array[...] = rng.integers(0, 256, array.nbytes, np.uint8)
    expected = [array.copy() for array in pages.arrays]
    for lane in (lanes.out, lanes.back):
        moves = [lane.begin(array, at, f"{number}") for number, (array, at) in enumerate(
            zip(pages.arrays, offsets, strict=True))]
        for move in moves:
            move.wait()
        if lane is lanes.out:
            for array in pages.arrays:
                array[...] = 0
    for array, values in zip(pages.arrays, expected, strict=True):
        np.testing.assert_array_equal(array, values)
    assert lanes.out.n_bytes == lanes.back.n_bytes == PAGE_BYTES * (n_pages + 4)
    found = lanes.bandwidth()
    assert found.out > 0 and found.back > 0
    lanes.close()
    assert sorted((way, label) for way, label, *_ in spans) == sorted((way, f"{i}") for way in (OUT, BACK)
                                                                       for i in range(3))
    for way in (OUT, BACK):
        times = [time for lane, _, *span in spans if lane == way for time in span]
        assert times == sorted(times)  # spans of a lane do not overlap
    file.close()


def test_several_pieces_are_under_way_at_once():
    together = threading.Barrier(N_AT_ONCE)  # broken, unless so many pieces come to it
    lane = lane_of(lambda part, at: together.wait(LONG) and None)
    lane.begin(np.zeros(PAGE_BYTES * N_AT_ONCE, np.uint8), 0, "x").wait()
    lane.close()


def test_what_comes_back_does_not_wait_for_what_leaves(tmp_path):
    file, is_back = SpillFile(str(tmp_path)), threading.Event()
    file.reserve(PAGE_BYTES)
    write = file.write

    def late(part, at):
        assert is_back.wait(LONG)
        write(part, at)

    file.write = late
    lanes, pages = DiskLanes(file), Pages([PAGE_BYTES, PAGE_BYTES])
    for number in range(2):
        pages.take(number)
    leaves = lanes.out.begin(pages.arrays[0], 0, "save")
    lanes.back.begin(pages.arrays[1], 0, "fetch").wait()
    assert lanes.bandwidth() is None
    is_back.set()
    leaves.wait()
    lanes.close()
    file.close()


def test_pieces_begin_in_order():
    begun, lock = [], threading.Lock()

    def move(part, at):
        with lock:
            begun.append(at)

    lane = lane_of(move)
    moves = [lane.begin(np.zeros(3 * PAGE_BYTES, np.uint8), 100 * i * PAGE_BYTES, "x") for i in range(5)]
    for each in moves:
        each.wait()
    lane.close()
    wanted = [(100 * i + j) * PAGE_BYTES for i in range(5) for j in range(3)]
    assert sorted(begun) == wanted
    for i, at in enumerate(wanted):  # only those under way at once may change places
        assert abs(begun.index(at) - i) < 2 * N_AT_ONCE


def test_an_error_is_raised_once_no_piece_is_under_way():
    first_is_over, n_under_way = threading.Event(), [0]

    def move(part, at):
        if at == 0:
            first_is_over.set()
            raise UserError("the disk is full")
        n_under_way[0] += 1
        assert first_is_over.wait(LONG)
        n_under_way[0] -= 1

    lane = lane_of(move)
    with pytest.raises(UserError, match="the disk is full"):
        lane.begin(np.zeros(2 * PAGE_BYTES, np.uint8), 0, "x").wait()
    assert n_under_way[0] == 0
    lane.begin(np.zeros(PAGE_BYTES, np.uint8), PAGE_BYTES, "y").wait()  # goes on
    lane.close()


@pytest.mark.parametrize("seed", range(20))
def test_seconds_are_shared_out_among_both_ways(seed):
    """Against a sum over ticks: in each, a way that is busy gets the tick, or half of it if the other is busy too."""
    rng, n_ticks = np.random.default_rng(seed), 200
    n_pieces = rng.integers(1, 30)
    pieces = [(int(rng.integers(2)), *sorted(rng.choice(n_ticks, 2, replace=False))) for _ in range(n_pieces)]
    busy = np.zeros((2, n_ticks), bool)
    for way, start, end in pieces:
        busy[way, start:end] = True
    wanted = (busy / np.maximum(busy.sum(0), 1)).sum(1)
    found = DiskSeconds()
    events = [(start, 1, way) for way, start, _ in pieces] + [(end, -1, way) for way, _, end in pieces]
    for now, change, way in sorted(events):
        found.count(way, change, float(now))
    np.testing.assert_allclose(found.seconds, wanted)
