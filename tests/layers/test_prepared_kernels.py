"""Compiled kernels made ready once: on new values each time, in as many parts as when they run at once."""

import gc

import numpy as np
import pytest

from scaffe.jit import checks_bounds, compiled
from scaffe.layers.kernels.cpu.threads import parts, prepared_calls
from scaffe.layers.kernels.cpu.threads.prepared_calls import prepare_parts, prepare_units

pytestmark = pytest.mark.skipif(checks_bounds(), reason="native code has nobody to raise to")


@pytest.fixture(autouse=True, params=[1, 2, 3])
def n_threads(request, monkeypatch):
    monkeypatch.setattr(prepared_calls, "LEAST_ELEMS", 1)
    parts.set_parts(request.param)
    yield request.param
    parts.set_parts(1)


@compiled
def _owned(start, stop, x, y, owners):
    """Doubles elements, and writes the part's start as their owner."""
    for i in range(start, stop):
        y[i] += 2 * x[i]
        owners[i] = start


@pytest.mark.parametrize(("unit", "n", "most"), [(1, 1, None), (1, 53, None), (4, 53, 2), (16, 33, None), (1, 5, 0)])
def test_ranges_are_whole_units_that_make_up_all(unit, n, most, n_threads):
    x, y, owners = np.arange(n, dtype=np.float32), np.zeros(n), np.full(n, -1)
    calls = prepare_units(_owned, unit, n, most, x, y, owners)
    for times in (1, 2, 3):
        assert calls.run() == len(calls) == 1
        np.testing.assert_array_equal(y, 2 * times * np.arange(n))
    n_units = -(-n // unit)
    n_parts = max(min(n_threads, n_units, n_threads if most is None else most), 1)
    starts = [n_units * part // n_parts * unit for part in range(n_parts)]
    np.testing.assert_array_equal(owners, np.repeat(starts, np.diff([*starts, n])))


@compiled
def _rows(y, x, factors, shift):
    for r in range(y.shape[0]):
        for c in range(y.shape[1]):
            y[r, c] = x[r, c] * factors[0] + factors[1] + shift[c]


def test_rows_of_arrays_that_nobody_else_has():
    def chain():
        x, y = np.arange(69, dtype=np.float32).reshape(23, 3), np.zeros((23, 3), np.float32)
        shift = np.array([5, 6, 7], np.float32)
        return prepare_parts(_rows, (y, x), (2.0, 1.0), shift) + prepare_parts(_rows, (x, y), (-1.0, 0.0), shift), x, y

    calls, x, y = chain()
    gc.collect()
    expected_x = x.astype(np.float64)
    for _ in range(3):
        assert calls.run() == 2
        expected_y = 2 * expected_x + 1 + [5, 6, 7]
        expected_x = -expected_y + [5, 6, 7]
        np.testing.assert_array_equal(y, expected_y)
        np.testing.assert_array_equal(x, expected_x)


@compiled
def _nested(start, stop, y, inputs):
    x, (shifts, factor) = inputs
    views = (x[start:stop], shifts)  # counts who has them
    for i in range(start, stop):
        y[i] = factor * views[0][i - start] + views[1][i]


def test_arrays_within_tuples(n_threads):
    def made():
        return prepare_units(_nested, 1, 50, None, y, (np.arange(50.0), (np.full(50, 2.0), 3.0)))

    y = np.zeros(50)
    calls = made()
    for _ in range(3):
        gc.collect()
        y[:] = 0
        calls.run()
        np.testing.assert_array_equal(y, 3 * np.arange(50) + 2)


@compiled
def _hungry(start, stop, n_elems, done):
    for i in range(start, stop):
        room = np.empty(n_elems[0] if i == 5 else 1, np.float64)
        done[i] += room.size


def test_a_part_that_gets_no_memory_ends_the_row_and_the_next_run_is_as_ever():
    done, n_elems = np.zeros(20), np.array([1 << 50])
    first = prepare_units(_hungry, 1, 20, None, np.ones(1, np.int64), np.zeros(20))
    calls = first + prepare_units(_hungry, 1, 20, None, n_elems, done) + first
    for _ in range(2):
        assert calls.run() == 1
        with pytest.raises(MemoryError, match="working memory"):
            calls.raise_error()
    n_elems[0], done[:] = 2, 0
    assert calls.run() == len(calls) == 3
    np.testing.assert_array_equal(done, np.where(np.arange(20) == 5, 2, 1))


@compiled
def _count(start, stop, arrays):
    for i in range(start, stop):
        arrays[0][i] = len(arrays)


def test_arguments_that_do_not_fit_are_said():
    with pytest.raises(TypeError, match="more than 2048 bytes"):
        prepare_units(_count, 1, 3, None, tuple(np.zeros(3) for _ in range(40)))


def test_what_native_code_cannot_call_is_not_bound(monkeypatch):
    assert prepare_units(np.add, 1, 3, None) is None
    monkeypatch.setenv("SCAFFE_BOUNDSCHECK", "1")
    assert prepare_units(_owned, 1, 3, None, np.zeros(3), np.zeros(3), np.zeros(3)) is None
