"""Compiled kernels in parts on OpenMP's threads, without the interpreter: ranges, rows, all kinds of arguments."""

import numpy as np
import pytest

from scaffe.jit import cache_key, checks_bounds, compiled
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.cpu.threads import parallel, parts
from scaffe.layers.kernels.cpu.threads.parts import OpenmpThreads, part_from

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN, and so no OpenMP")


@pytest.fixture(autouse=True, params=[2, 3, 7])
def n_threads(request, monkeypatch):
    monkeypatch.setattr(parts, "LEAST_ELEMS", 1)
    parts.set_parts(request.param)
    yield request.param
    parts.set_parts(1)


@compiled
def _note(start, stop, seen, owners):
    """Writes how often an element comes, and the part's start as its owner."""
    for i in range(start, stop):
        seen[i] += 1
        owners[i] = start


@pytest.mark.parametrize(("unit", "n"), [(1, 1), (1, 53), (4, 53), (16, 32), (16, 33), (64, 53)])
def test_ranges_are_whole_units_that_make_up_all(unit, n, n_threads):
    seen, owners = np.zeros(n), np.full(n, -1)
    parts.in_units(_note, unit, n, None, seen, owners)
    np.testing.assert_array_equal(seen, 1)
    n_units = -(-n // unit)
    n_parts = min(n_threads, n_units)
    starts = [n_units * part // n_parts * unit for part in range(n_parts)]
    np.testing.assert_array_equal(owners, np.repeat(starts, np.diff([*starts, n])))


@compiled
def _part(start, n_parts, length):
    return part_from(start, n_parts, length)


def test_a_part_knows_its_number_by_where_it_starts():
    for length in range(1, 40):
        for n_parts in range(1, length + 1):
            assert [_part(length * i // n_parts, n_parts, length) for i in range(n_parts)] == [*range(n_parts)]


def test_no_more_parts_than_are_asked_for(n_threads):
    seen, owners = np.zeros(60), np.zeros(60)
    parts.in_units(_note, 1, 60, 2, seen, owners)
    assert sorted(set(owners)) == [0, 30]


@compiled
def _mixed(y, x, pair, table, numbers, word, other):
    for r in range(y.shape[0]):
        for c in range(y.shape[1]):
            y[r, c] = x[r, c] * numbers[0] + pair[c] + table[0, 1] + word + numbers[1]
            if other is not None:
                y[r, c] += other[c]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("has_other", [False, True])
def test_parts_get_their_rows_and_all_other_arguments_as_they_are(dtype, has_other, n_threads):
    """Arrays with and without gaps between rows, backwards, read-only; tuples, None, numbers."""
    rng = np.random.default_rng(3)
    x = np.asarray(rng.integers(-9, 9, (46, 12)), dtype)[::-2, 2:7]
    table = np.asarray(rng.integers(-9, 9, (2, 3)), np.float64)
    table.flags.writeable = False
    pair, other = np.arange(5, dtype=dtype), np.full(5, 3, dtype) if has_other else None
    y = np.zeros((23, 9), np.float64)
    parts.in_parts(_mixed, (y[:, 1:6], x), pair, table, (2, 0.5), 7, other)
    expected = x * 2.0 + pair + table[0, 1] + 7 + 0.5 + (0 if other is None else other)
    np.testing.assert_array_equal(y[:, 1:6], expected)
    np.testing.assert_array_equal(y[:, [0, 6, 7, 8]], 0)


@compiled
def _hungry(start, stop, n_elems, done):
    for i in range(start, stop):
        room = np.empty(n_elems if i == 5 else 1, np.float64)
        done[i] = room.size


@pytest.mark.skipif(checks_bounds(), reason="where indices are checked, Python calls them, and says what numba says")
def test_a_part_that_gets_no_memory_is_an_error_when_all_are_done(n_threads):
    done = np.zeros(20)
    with pytest.raises(MemoryError, match="working memory"):
        parts.in_units(_hungry, 1, 20, None, 1 << 50, done)
    assert done[-1] == 1
    parts.in_units(_hungry, 1, 20, None, 2, done)
    np.testing.assert_array_equal(done, np.where(np.arange(20) == 5, 2, 1))


def test_kernels_of_two_teams_run_beside_one_another(n_threads):
    from concurrent.futures import ThreadPoolExecutor

    def of_one(_caller):
        seen = np.zeros(1000)
        for _ in range(50):
            parallel.run(OpenmpThreads(n_threads).native, _note, 5, 1000, 1, 1000, seen, np.zeros(1000))
        return seen

    with ThreadPoolExecutor(4) as callers:
        for seen in callers.map(of_one, range(4)):
            np.testing.assert_array_equal(seen, 50)


def test_where_indices_are_checked_python_calls_them(monkeypatch):
    monkeypatch.delenv("SCAFFE_BOUNDSCHECK", raising=False)
    assert parallel.can_be_parallel(_note)
    assert not parallel.can_be_parallel(np.add)
    monkeypatch.setenv("SCAFFE_BOUNDSCHECK", "1")
    assert not parallel.can_be_parallel(_note)


def test_what_is_kept_of_it_depends_on_both_modules_sources(monkeypatch):
    """On the kernel's, and on that which makes the code around it."""
    asked = []
    monkeypatch.setattr(cache_key, "_sources", lambda module: asked.append(module) or module)
    cache_key.dependencies.__wrapped__(parallel._wrapper(_note, 0).py_func)
    assert sorted(asked) == sorted([_note.py_func.__module__, parallel.__name__])
