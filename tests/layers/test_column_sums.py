"""Sums over the rows of matrices, as batch norm and Scale take them: the same on any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu import set_threads
from scaffe.layers.kernels.cpu.batch_norm_plan import Transform
from scaffe.layers.kernels.cpu.channels import add_gradients
from scaffe.layers.kernels.cpu.threads import parts
from scaffe.layers.kernels.specs import Fused

ROWS = (1, 2, 31, 32, 33, 64, 201)
CHANNELS = (1, 15, 16, 37)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few elements are enough for several threads."""
    monkeypatch.setattr(parts, "LEAST_ELEMS", 1)
    yield
    set_threads(1)


def rows(n_rows: int, n_channels: int, mean: float = 0) -> np.ndarray:
    """Standard normal numbers about each channel's mean, float32."""
    rng = np.random.default_rng(n_rows)
    return (rng.standard_normal((n_rows, n_channels)) + mean * np.arange(n_channels)).astype(np.float32)


def alike(compute: Callable[[], tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """What it computes, after a look that 1, 2 and 3 threads give the same bits."""
    found = []
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        found.append(compute())
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    return found[0]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("n_rows", ROWS)
@pytest.mark.parametrize("n_channels", CHANNELS)
def test_moments(n_rows: int, n_channels: int) -> None:
    x = rows(n_rows, n_channels, 1)
    mean, variance = alike(lambda: cpu.moments(x))
    np.testing.assert_allclose(mean, x.mean(0, dtype=float), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(variance, x.var(0, dtype=float), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_sums_of_nothing_are_nothing(shape: tuple[int, int]) -> None:
    x = np.zeros(shape, np.float32)
    for found in (*cpu.moments(x), *cpu.scale_sums(x, x)):
        np.testing.assert_array_equal(found, np.zeros(shape[1]))


@pytest.mark.parametrize("away", [1e3, 1e5])
def test_moments_far_from_zero_keep_their_digits(away: float) -> None:
    x = rows(500, 20) + np.float32(away)
    x[:100] -= 3  # the first blocks lie elsewhere
    mean, variance = cpu.moments(x)
    np.testing.assert_allclose(mean, x.mean(0, dtype=float), rtol=1e-8)
    np.testing.assert_allclose(variance, x.var(0, dtype=float), rtol=1e-5)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("n_rows", ROWS)
def test_gradients_of_scale_and_bias(n_rows: int) -> None:
    x, gy = rows(n_rows, 37), rows(n_rows, 37, 0.1)
    products, sums = alike(lambda: cpu.scale_sums(x, gy))
    np.testing.assert_allclose(products, (x.astype(float) * gy).sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums, gy.sum(0, dtype=float), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("slope", [None, 0.25])
def test_scaled_rows(in_place: bool, slope: float | None) -> None:
    x, scale, bias = rows(33, 37), rows(1, 37)[0], rows(2, 37)[1]

    def scaled() -> tuple[np.ndarray, ...]:
        source, kept = x.copy(), np.zeros_like(x)
        y = source if in_place else np.zeros_like(x)
        cpu.scale_rows(source, scale, bias, y, kept, slope)
        return y, kept

    y, kept = alike(scaled)
    expected = x.astype(float) * scale + bias
    np.testing.assert_allclose(y, expected if slope is None else np.where(expected > 0, expected, slope * expected),
                               rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(kept, x)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("n_channels", (1, 20, 32, 37, 50))
@pytest.mark.parametrize("n_rows", (*ROWS, 320))
def test_gradients_of_a_bias(n_rows: int, n_channels: int, overwrite: bool) -> None:
    """Rows that lie beside one another, where together they fill lines of the cache, and others."""
    g = rows(n_rows, n_channels, 0.1)

    def added() -> tuple[np.ndarray, ...]:
        gb = np.ones(n_channels, np.float32)
        add_gradients(g, gb, overwrite)
        return (gb,)

    np.testing.assert_allclose(alike(added)[0], g.sum(0, dtype=float) + (not overwrite), rtol=1e-6, atol=1e-5)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("slope", [None, 0.25])
@pytest.mark.parametrize("n_rows", ROWS)
def test_sums_of_batch_norms_backward(slope: float | None, n_rows: int) -> None:
    x, gy = rows(n_rows, 37), rows(n_rows, 37, 0.1)
    mean, inverse = np.linspace(-1, 1, 37, dtype=np.float32), np.linspace(1, 2, 37, dtype=np.float32)
    products, sums = alike(lambda: Transform(mean, inverse, Fused(slope=slope)).sums(x, gy))
    away = x.astype(float) - mean
    g = gy if slope is None else np.where(away > 0, gy, slope * gy)
    np.testing.assert_allclose(products, (g * away).sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums, g.sum(0, dtype=float), rtol=1e-5, atol=1e-5)
