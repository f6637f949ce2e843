"""Gradients of inner products' weights by tiles: NumPy's, on any number of threads, written or added."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu import inner_product_plan, set_threads
from scaffe.layers.kernels.cpu.inner_product_plan import WeightGradients

SHAPES = [(1, 8, 32), (5, 21, 96), (8, 1, 64), (17, 40, 32), (64, 23, 160)]


@pytest.fixture(params=[1, 3])
def n_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Threads that have work however little there is."""
    monkeypatch.setattr(inner_product_plan, "LEAST_PRODUCTS", 1)
    set_threads(request.param)
    yield request.param
    set_threads(1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("overwrite", [True, False])
def test_they_are_numpys(n_threads: int, shape: tuple[int, int, int], overwrite: bool) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m)
    x, gy, gw, gb = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (m, n), (n, k), n))
    kept = 0 if overwrite else 1
    expected = kept * gw + gy.T.astype(float) @ x, kept * gb + gy.sum(0, dtype=float)
    WeightGradients(cpu.inner_product(m, n, k), m, n, k).backward_weights(x, gy, gw, gb, overwrite)
    for got, e in zip((gw, gb), expected, strict=True):
        np.testing.assert_allclose(got, e, rtol=0, atol=1e-5 * np.sqrt(m))


def test_one_without_a_bias_and_numbers_that_are_none() -> None:
    x, gy, gw = np.ones((2, 32), np.float32), np.ones((2, 3), np.float32), np.full((3, 32), np.nan, np.float32)
    x[1, 5] = np.inf
    WeightGradients(cpu.inner_product(2, 3, 32), 2, 3, 32).backward_weights(x, gy, gw, None, True)
    expected = np.full((3, 32), 2.0)
    expected[:, 5] = np.inf
    np.testing.assert_array_equal(gw, expected)


def test_arrays_of_another_length_are_refused() -> None:
    plan, arrays = WeightGradients(cpu.inner_product(2, 3, 32), 2, 3, 32), [(2, 32), (2, 3), (3, 32), (3,)]
    for i in range(4):
        shapes = [(1,) if i == j else shape for j, shape in enumerate(arrays)]
        with pytest.raises(LayerError):
            plan.backward_weights(*(np.zeros(shape, np.float32) for shape in shapes))


def test_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_product_plan, "is_fast", lambda: True)
    monkeypatch.setattr(inner_product_plan, "MOST_ROWS", 64)
    float32 = {"dtype": np.float32}
    for shape, options, expected in (
            ((64, 1000, 1024), float32, True), ((8, 1000, 1024), float32, True), ((65, 1000, 1024), float32, False),
            ((64, 480, 4096), float32, False), ((64, 1000, 992), float32, False), ((8, 1024, 1000), float32, False),
            ((0, 1000, 1024), float32, False),
            ((8, 1000, 1024), {"transpose": True}, False), ((8, 1000, 1024), {"dtype": np.float64}, False)):
        assert isinstance(cpu.inner_product(*shape, **options), WeightGradients) == expected, (shape, options)
