"""Small work of many layers in one launch: the same numbers, in whatever order it comes, and never two on one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda import deferred
from scaffe.layers.kernels.cuda.products import Weights
from tests.layers.cuda.rig import HALVES, numbers

SHAPES = [(3, 5, 3, 3), (7, 4, 1, 1), (2, 1, 5, 3), (6, 16, 2), (1, 1, 1, 1)] * 26  # 130: more than two tables hold
TYPES = [np.dtype(np.float32), *HALVES]


def in_kernels_order(gradient: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(gradient, 1, -1))


@pytest.fixture
def launches(cp: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of entries of each launch."""
    found: list[int] = []
    launch = deferred._launch
    monkeypatch.setattr(deferred, "_launch", lambda table, dtype, other, works: (
        found.append(len(works)), launch(table, dtype, other, works)))
    return found


def grow_to(n_bytes: int) -> None:
    """As a first pass does."""
    with deferred.deferring():
        deferred.memory((n_bytes, np.uint8))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_gradients_of_many_layers(cp: Any, launches: list[int], dtype: np.dtype) -> None:
    """Twice: written, then added. Sums are of two numbers of float32, so there is one right answer."""
    gradients = [[numbers(shape, dtype, seed) for seed, shape in enumerate(SHAPES, 1000 * time)] for time in range(2)]
    targets = [cp.full(shape, np.nan, np.float32) for shape in SHAPES]
    grow_to(1024 * len(SHAPES))
    for time, own in enumerate(gradients):
        with cuda.deferring():
            for gradient, target in zip(own, targets, strict=True):
                place = deferred.memory((gradient.shape, dtype))
                place[...] = cp.asarray(in_kernels_order(gradient).reshape(gradient.shape))
                Weights(gradient.shape, dtype).bring_back(place, target, time == 0, waits=True)
    assert launches == [64, 64, 2] * 2
    for first, second, target in zip(*gradients, targets, strict=True):
        np.testing.assert_array_equal(target.get(), first.astype(np.float32) + second.astype(np.float32))


def test_two_on_one_array_come_one_after_the_other(cp: Any, launches: list[int]) -> None:
    one, other = (numbers((2, 3, 2, 2), np.dtype(np.float32), seed) for seed in (1, 2))
    target, weights = cp.empty(one.shape, np.float32), Weights(one.shape, np.float32)
    with cuda.deferring():
        for number, gradient in enumerate((one, other)):
            weights.bring_back(cp.asarray(in_kernels_order(gradient)), target, number == 0, waits=True)
    assert launches == [1, 1]
    np.testing.assert_array_equal(target.get(), one + other)


def test_what_lies_in_scratch_memory_does_not_wait_and_takes_along_what_was_ahead(cp: Any, launches: list[int]) -> None:
    one, other = (numbers((2, 3, 2, 2), np.dtype(np.float32), seed) for seed in (1, 2))
    target, weights = cp.empty(one.shape, np.float32), Weights(one.shape, np.float32)
    with cuda.deferring():
        weights.bring_back(cp.asarray(in_kernels_order(one)), target, True, waits=True)
        scratch = cp.asarray(in_kernels_order(other))
        weights.bring_back(scratch, target, False)
        scratch[...] = np.nan  # the next layer's
        assert launches == [1, 1]
    np.testing.assert_array_equal(target.get(), one + other)


def test_memory_that_is_full_is_used_again(cp: Any, launches: list[int]) -> None:
    grow_to(3 * 256)
    gradients = [numbers((4, 2, 2, 1), np.dtype(np.float32), seed) for seed in range(8)]
    targets = [cp.empty(g.shape, np.float32) for g in gradients]
    deferred.results.forget()
    grow_to(3 * 256)
    with cuda.deferring():
        for gradient, target in zip(gradients, targets, strict=True):
            place = deferred.memory((gradient.shape, np.float32))
            place[...] = cp.asarray(in_kernels_order(gradient).reshape(gradient.shape))
            Weights(gradient.shape, np.float32).bring_back(place, target, True, waits=True)
    assert launches == [3, 3, 2]
    for gradient, target in zip(gradients, targets, strict=True):
        np.testing.assert_array_equal(target.get(), gradient)


def test_memory_grows_between_passes_to_what_the_last_one_asked_for(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deferred.results.forget()
    monkeypatch.setattr(deferred, "MOST_BYTES", 5 * 256)
    assert deferred.memory((1, np.float32)) is None  # no pass
    for n_asked, n_bytes in ((2, 2), (1, 2), (4, 4), (9, 5)):
        with deferred.deferring():
            had = deferred.results.n_bytes
            assert (deferred.memory((65 * n_asked, np.float32)) is None) == (had < 256 * (n_asked + 1))
        assert deferred.results.n_bytes == max(256 * min(n_bytes + 1, 5), had)


def test_nothing_waits_where_that_is_not_wanted(cp: Any, launches: list[int]) -> None:
    grow_to(1 << 10)
    gradient = numbers((2, 3, 2, 2), np.dtype(np.float32), 1)
    with cuda.deferring(), cuda.deferring(False):
        assert deferred.memory((gradient.shape, np.float32)) is None
        target = cp.empty(gradient.shape, np.float32)
        Weights(gradient.shape, np.float32).bring_back(cp.asarray(in_kernels_order(gradient)), target, True, waits=True)
        assert launches == [1]


def test_after_an_error_nothing_is_left(cp: Any, launches: list[int]) -> None:
    gradient = numbers((2, 3, 2, 2), np.dtype(np.float32), 1)
    target = cp.zeros(gradient.shape, np.float32)
    with pytest.raises(KeyError), cuda.deferring():
        Weights(gradient.shape, np.float32).bring_back(cp.asarray(gradient), target, True, waits=True)
        raise KeyError
    with cuda.deferring():
        pass
    assert launches == []


def test_a_table_is_what_the_kernel_takes(cp: Any) -> None:
    """The pretend device compares the parameter's length with the struct's; a card takes 4,096 bytes."""
    for table in (deferred.GRADIENTS, deferred.SUMS):
        assert table.parameter.itemsize <= 4096
