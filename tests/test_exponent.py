"""e to the power of numbers: against the C library's in float64, at the ends of float32's range, and beyond."""

import numpy as np
import pytest

from scaffe.jit import compiled
from scaffe.jit.loops import exponential


@compiled
def _powers(x, y):
    for i in range(x.size):
        y[i] = exponential(x[i])


def powers(x):
    y = np.full_like(x, 77)
    _powers(x, y)
    return y


@pytest.mark.parametrize("n_elems", [1, 7, 16, 100_003])
def test_float32_is_within_an_ulp(n_elems):
    x = np.linspace(-87, 88.5, n_elems, dtype=np.float32)
    np.testing.assert_allclose(powers(x), np.exp(x.astype(np.float64)), rtol=1e-7)


def test_denormal_results():
    x = np.linspace(-103.5, -87.4, 1001, dtype=np.float32)
    np.testing.assert_allclose(powers(x), np.exp(x.astype(np.float64)), rtol=0, atol=1.5e-45)


def test_the_ends():
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, 89, -105, 3e38, -3e38, 1e-45], np.float32)
    np.testing.assert_array_equal(powers(x), [1, 1, np.inf, 0, np.nan, np.inf, 0, np.inf, 0, 1])


def test_float64_is_the_librarys():
    x = np.linspace(-700, 700, 1001)
    np.testing.assert_allclose(powers(x), np.exp(x), rtol=1e-15)
