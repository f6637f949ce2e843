"""Gradients of which only every other place counts: against whole ones that are 0 elsewhere, and naive references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda import thinned as kernels
from scaffe.layers.kernels.specs import ConvSpec, Fused, FusedDiffs, NormSpec, Thinned
from tests.layers.cuda.rig import EPS, HALVES, close, double, every_dtype, numbers, shifted, stored, wide
from tests.reference import batch_norm as reference

CASES = [  # logical shape, step
    ((2, 16, 5, 5), (2, 2)), ((3, 8, 4, 6), (2, 3)), ((1, 5, 7, 3), (1, 2)), ((2, 64, 1, 4), (3, 3))]
every_case = pytest.mark.parametrize(("shape", "step"), CASES)
MISALIGNED = 3  # elements


def thin(logical: np.ndarray, step: tuple[int, int]) -> np.ndarray:
    return stored(logical[:, :, ::step[0], ::step[1]])


@every_case
def test_what_a_convolution_of_one_by_one_reads(shape: tuple, step: tuple) -> None:
    spec = ConvSpec(shape, 7, (1, 1), step, (0, 0), (1, 1))
    assert (spec.thinned, spec.on_thinned.out_shape) == (Thinned(shape, step), spec.out_shape)
    assert spec.thinned.kept_shape == spec.on_thinned.in_shape == np.empty(shape)[:, :, ::step[0], ::step[1]].shape


@pytest.mark.parametrize("change", [
    {"stride": (1, 1)}, {"kernel": (2, 1)}, {"pad": (1, 1)}, {"group": 2}])
def test_others_read_all_places(change: dict) -> None:
    spec = ConvSpec(**{"in_shape": (2, 4, 5, 5), "n_output": 6, "kernel": (1, 1), "stride": (2, 2), "pad": (0, 0),
                       "dilation": (1, 1)} | change)
    assert spec.thinned is None


@every_dtype
@every_case
def test_places_are_kept(cp: Any, shape: tuple, step: tuple, dtype: np.dtype) -> None:
    x = numbers(shape, dtype, 1)
    got = kernels.keep_places(cp.asarray(stored(x)).reshape(-1), Thinned(shape, step), dtype)
    np.testing.assert_array_equal(double(got.get()), double(thin(x, step).reshape(-1)))


@pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.name)
def test_sign_bits_are_kept(cp: Any, dtype: np.dtype) -> None:
    shape, step = CASES[0]
    signs = stored(numbers(shape, dtype, 1)).reshape(-1) > 0
    got = kernels.keep_places(cp.asarray(np.packbits(signs, bitorder="little")), Thinned(shape, step), dtype)
    kept = signs.reshape(2, 5, 5, 16)[:, ::2, ::2].reshape(-1)
    np.testing.assert_array_equal(got.get(), np.packbits(kept, bitorder="little"))


@pytest.mark.parametrize("signs", ["none", "data", "bits"])
@pytest.mark.parametrize("by", [0, MISALIGNED])
@every_dtype
@every_case
def test_a_thinned_addend(cp: Any, shape: tuple, step: tuple, dtype: np.dtype, by: int, signs: str) -> None:
    """All other places keep what they held."""
    x, y, addend = numbers(shape, dtype, 1), numbers(shape, dtype, 2), numbers(shape, dtype, 3)
    y[0, 0, 0, 0] = 0  # a kink is not above 0
    on_device, small = shifted(cp, stored(x).reshape(-1), by), cp.asarray(thin(addend, step))
    given = {"none": None, "data": cp.asarray(stored(y).reshape(-1)),
             "bits": cp.asarray(np.packbits((double(stored(y)) > 0).reshape(-1), bitorder="little"))}[signs]
    kernels.add_thinned(on_device, small, Thinned(shape, step), given)
    expected, passes = double(x), np.ones(shape, bool) if signs == "none" else double(y) > 0
    places = (slice(None), slice(None), slice(None, None, step[0]), slice(None, None, step[1]))
    expected[places] += np.where(passes, double(addend), 0)[places]
    close(on_device, stored(expected).reshape(-1), dtype, 1)


@pytest.mark.parametrize("what", ["plain", "scale, bias, relu"])
@every_dtype
@every_case
def test_batch_norms_backward(cp: Any, kind: str, shape: tuple, step: tuple, dtype: np.dtype, what: str) -> None:
    spec = NormSpec(shape, 2.0**-9, 0.75, dtype)
    plan, real, n = cuda.batch_norm(spec), wide(dtype), shape[1]
    x, whole = stored(numbers(shape, dtype, 0, -3, 5)).reshape(-1, n), np.zeros(shape)
    places = (slice(None), slice(None), slice(None, None, step[0]), slice(None, None, step[1]))
    whole[places] = double(numbers(shape, dtype, 1))[places]
    scale, bias = numbers(n, real, 2, 0.5, 2), numbers(n, real, 3)
    plain = what == "plain"
    fused = Fused() if plain else Fused(cp.asarray(scale), cp.asarray(bias), 0.0)
    factors = (np.ones(n), np.zeros(n), 1.0) if plain else (double(scale), double(bias), 0.0)
    sums = [cp.ones(n, real), cp.ones(n, real), cp.ones(1, real)]
    on_x, gx = cp.asarray(x), cp.empty(x.shape, dtype)
    plan.forward_train(on_x, cp.empty(x.shape, dtype), sums, fused)
    gradient = cp.asarray(thin(whole, step).astype(dtype).reshape(-1))
    for target, overwrite in ((gx, True), (None, False)):
        diffs = FusedDiffs(cp.ones(n, real), cp.ones(n, real), overwrite)
        plan.backward_thinned(on_x, gradient, target, Thinned(shape, step), fused, diffs)
        expected = reference.backward(double(x), stored(whole).reshape(-1, n), spec.eps, *factors)
        np.testing.assert_allclose(double(gx.get()), expected[0], rtol=0, atol=8 * 2**5.5 * EPS[dtype.name])
        for got, e in zip((diffs.scale, diffs.bias), expected[1:], strict=True):
            np.testing.assert_allclose(double(got.get()), e + (not overwrite), rtol=0, atol=2e3 * EPS[real.name])
