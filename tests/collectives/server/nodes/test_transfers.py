"""Rows in runs as one strip, and transfers of it in chunks, against numpy's fancy indexing."""

import numpy as np
import pytest

from scaffe.collectives.server.nodes.links import _Lane
from scaffe.collectives.server.nodes.transfers import CHUNK_BYTES, ContiguousSpan, Incoming, Outgoing, Staging

CHUNK = CHUNK_BYTES // 8


def drawn(seed, most=40):
    """A strip and the places of its elements in an array of 500."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(500, 2 * int(rng.integers(1, 20)), replace=False)).reshape(-1, 2)
    ranges = cuts[rng.permutation(len(cuts))] if seed % 2 else cuts
    ranges = np.concatenate([ranges, [[ranges[-1, 1], min(ranges[-1, 1] + 3, 500)]]])  # a neighbour, maybe an empty one
    positions = np.concatenate([np.arange(*run) for run in ranges])
    return ContiguousSpan(ranges[:, 0], ranges[:, 1] - ranges[:, 0]), positions


@pytest.mark.parametrize("seed", range(40))
def test_a_strip_is_its_runs_in_order(seed):
    span, positions = drawn(seed)
    rng, array = np.random.default_rng(seed), np.random.default_rng(seed).random(500)
    assert span.n_elems == len(positions)
    for _ in range(20):
        at = int(rng.integers(len(positions)))
        n_elems = int(rng.integers(1, len(positions) - at + 1))
        part, back = np.empty(n_elems), np.zeros(500)
        span.gather(array, at, part)
        np.testing.assert_array_equal(part, array[positions[at : at + n_elems]])
        span.scatter(part, at, back)
        expected = np.zeros(500)
        expected[positions[at : at + n_elems]] = part
        np.testing.assert_array_equal(back, expected)
        found = span.slice(at, n_elems)
        assert (found is None) == bool((np.diff(positions[at : at + n_elems]) != 1).any())
        assert found is None or (found.start, found.stop) == (positions[at], positions[at] + n_elems)


def carry(outgoing, incoming):
    """All chunks from one to the other, two under way at a time."""
    while not outgoing.is_done:
        pairs = [(outgoing.next(), incoming.next()) for _ in range(2) if outgoing.n_left]
        for sent, got in pairs:
            got[:] = sent
        for sent, got in pairs:
            outgoing.finish(sent)
            incoming.finish(got)
    assert incoming.is_done


@pytest.mark.parametrize("n_arrays", [1, 2, 5])
@pytest.mark.parametrize(("first", "last"), [("whole", "whole"), ("scattered", "whole"), ("whole", "scattered"),
                                             ("scattered", "scattered")])
def test_a_transfer_carries_sums_in_the_order_of_the_arrays(n_arrays, first, last):
    """Two chunks and a half, of numbers whose sums depend on the order."""
    n_elems = 5 * CHUNK // 2 + 3
    rng = np.random.default_rng(n_arrays)
    scattered = np.arange(n_elems) + np.arange(n_elems) // 1000 * 7
    positions = {"whole": np.arange(n_elems) + 11, "scattered": scattered[::-1] if n_arrays == 2 else scattered}
    arrays = [rng.standard_normal(2 * n_elems) for _ in range(n_arrays)]
    target, staging = np.zeros(2 * n_elems), Staging()
    strips = [ContiguousSpan(positions[kind], np.ones(n_elems, np.int64)) for kind in (first, last)]
    carry(Outgoing(arrays, strips[0], staging, print), Incoming(target, strips[1], staging, print))
    total = arrays[0][positions[first]]
    for array in arrays[1:]:
        total = total + array[positions[first]]
    expected = np.zeros(2 * n_elems)
    expected[positions[last]] = total
    np.testing.assert_array_equal(target, expected)


def test_what_lies_in_one_piece_is_not_copied():
    array = np.zeros(100)
    span = ContiguousSpan(np.array([10, 15]), np.array([5, 20]))
    for transfer in (Outgoing([array], span, Staging(), print), Incoming(array, span, Staging(), print)):
        chunk = transfer.next()
        assert chunk.ctypes.data == array[10:].ctypes.data
        assert chunk.size == 25
        transfer.finish(chunk)
        assert transfer.is_done


def test_a_strip_of_nothing_is_done_at_once():
    span = ContiguousSpan(np.array([10]), np.array([0]))
    assert span.n_elems == 0
    assert Outgoing([np.zeros(100)], span, Staging(), print).is_done


def test_what_yields_goes_when_nothing_else_waits():
    lane, sizes = _Lane(), {"second copy": 3, "old": 2, "new": 1}
    transfers = {}
    for name, n_chunks in sizes.items():
        rows = np.zeros(n_chunks * CHUNK)
        transfers[name] = Outgoing([rows], ContiguousSpan.all_of(rows), Staging(), int, yields=name == "second copy")
        lane.transfers[transfers[name]] = 0
    order = []
    while (picked := lane.pick()) is not None:
        picked.next()
        order.append(next(name for name, transfer in transfers.items() if transfer is picked))
    assert sorted(order[:3]) == ["new", "old", "old"]
    assert order[3:] == ["second copy"] * 3
