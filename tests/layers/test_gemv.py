"""Inner products of few rows: the same sums whatever the threads, and numbers that are none stay none."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu import gemv, set_threads
from scaffe.layers.kernels.cpu.gemv import GemvProducts


def product(m: int, n: int, k: int, b: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The top, and the sums in float64 without bias."""
    rng = np.random.default_rng(m)
    x, w = rng.standard_normal((m, k), np.float32), rng.standard_normal((n, k), np.float32)
    y, plan = np.full((m, n), np.nan, np.float32), cpu.inner_product(m, n, k)
    assert isinstance(plan, GemvProducts)
    plan.forward(x, w, b, y)
    return y, x.astype(float) @ w.T.astype(float)


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 4, 23, 40])
def test_any_number_of_threads_gives_the_same_bits(m: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemv, "LEAST_WEIGHTS", 1)
    try:
        found = []
        for n_threads in (1, 2, 3):
            set_threads(n_threads)
            found.append(product(m, n, 37)[0])
        np.testing.assert_allclose(found[0], product(m, n, 37)[1], rtol=1e-5, atol=1e-5)
        for other in found[1:]:
            np.testing.assert_array_equal(other, found[0])
    finally:
        set_threads(1)


def test_each_output_is_summed_alike_whatever_stands_beside_it() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 301), np.float32), rng.standard_normal((7, 301), np.float32)
    whole, alone = np.empty((1, 7), np.float32), np.empty((1, 1), np.float32)
    cpu.inner_product(1, 7, 301).forward(x, w, None, whole)
    for o in range(7):
        cpu.inner_product(1, 1, 301).forward(x, w[o : o + 1], None, alone)
        assert alone[0, 0] == whole[0, o]


def test_numbers_that_are_none_are_passed_on() -> None:
    x, w, y = np.ones((1, 3), np.float32), np.ones((5, 3), np.float32), np.zeros((1, 5), np.float32)
    w[1, 1], w[2, 0], w[3, 2] = np.nan, np.inf, -np.inf
    cpu.inner_product(1, 5, 3).forward(x, w, np.zeros(5, np.float32), y, 0.5)
    np.testing.assert_array_equal(y, [[3, np.nan, np.inf, -np.inf, 3]])
