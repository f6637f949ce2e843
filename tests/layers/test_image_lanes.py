"""Convolutions with images in the lanes of vectors, against sums in float64, on batches that fill no whole vectors."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.jit import compiled
from scaffe.jit.simd import transpose
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu import arrays, set_threads
from scaffe.layers.kernels.cpu.conv import few_inputs
from scaffe.layers.kernels.cpu.conv.few_inputs import FewInputs
from scaffe.layers.kernels.cpu.conv.image_lanes import Convolution, supports
from scaffe.layers.kernels.cpu.conv.panels import is_fast
from scaffe.layers.kernels.cpu.conv.portable import Convolution as Portable
from scaffe.layers.kernels.cpu.conv.weight_gradients import SeparateWeightGradient
from tests.layers.test_winograd import drawn, expected, expected_gradients, spec_of

SHAPES = pytest.mark.parametrize(("n", "c", "height", "width", "n_output", "pad", "taps"), [
    (1, 10, 5, 5, 10, 0, 5), (16, 10, 6, 7, 20, 1, 3), (17, 20, 3, 9, 10, 2, 5), (33, 10, 4, 2, 10, 2, 3),
    (49, 10, 8, 3, 30, 0, 3), (64, 20, 6, 5, 10, 4, 5), (70, 10, 5, 4, 10, 0, 2)])


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    set_threads(request.param)
    yield request.param
    set_threads(1)


@pytest.fixture(autouse=True)
def used_memory():
    """Working memory that another layer has left full of what is no number."""
    for name in ("bottom", "top", "weights", "turned"):
        arrays.workspace(name, 1 << 22).view(np.float32)[:] = np.nan


@pytest.mark.usefixtures("threads")
@SHAPES
def test_the_passes_are_the_formulas(n, c, height, width, n_output, pad, taps):
    spec = spec_of(n, c, height, width, n_output, pad, taps)
    x, w, b, gy = drawn(spec, np.random.default_rng(n + height))
    plan = Convolution(spec)
    y, gx, gw, gb = (np.full_like(array, np.nan) for array in (gy, x, w, b))
    plan.forward(x, w, b, y, 0.25)
    plan.backward_data(gy, w, gx)
    plan.backward_weights(x, gy, gw, gb, overwrite=True)
    wanted_gx, wanted_gw = expected_gradients(spec, x, w, gy)
    n_sums = n * height * width
    np.testing.assert_allclose(y, expected(spec, x, w, b, 0.25, None), rtol=0, atol=1e-6 * taps * c)
    np.testing.assert_allclose(gx, wanted_gx, rtol=0, atol=1e-6 * taps * n_output)
    np.testing.assert_allclose(gw, wanted_gw, rtol=0, atol=1e-5 * n_sums ** 0.5)
    np.testing.assert_allclose(gb, gy.astype(np.float64).sum((0, 1, 2)), rtol=0, atol=1e-6 * n_sums)
    plan.forward(x, w, None, y)
    np.testing.assert_allclose(y, expected(spec, x, w, 0, None, None), rtol=0, atol=1e-6 * taps * c)
    once = gw.copy(), gb.copy()
    plan.backward_weights(x, gy, gw, gb)
    np.testing.assert_array_equal(gw, 2 * once[0])
    np.testing.assert_array_equal(gb, 2 * once[1])


@pytest.mark.parametrize(("n", "c", "height", "width", "n_output", "pad"), [
    (1, 1, 5, 5, 4, 0), (16, 1, 12, 9, 20, 0), (33, 3, 6, 11, 4, 2), (20, 2, 40, 37, 8, 4), (64, 3, 7, 5, 12, 1)])
def test_gradients_of_few_inputs_are_the_formulas(n, c, height, width, n_output, pad, threads):
    spec = spec_of(n, c, height, width, n_output, pad, 5)
    x, w, b, gy = drawn(spec, np.random.default_rng(n + height))
    plan = SeparateWeightGradient(Portable(spec), spec, FewInputs(spec))
    gw, gb = np.full_like(w, np.nan), np.full_like(b, np.nan)
    plan.backward_weights(x, gy, gw, gb, overwrite=True)
    atol = 1e-5 * (n * height * width) ** 0.5
    np.testing.assert_allclose(gw, expected_gradients(spec, x, w, gy)[1], rtol=0, atol=atol)
    np.testing.assert_allclose(gb, gy.astype(np.float64).sum((0, 1, 2)), rtol=0, atol=1e-6 * n * height * width)
    once = gw.copy()
    plan.backward_weights(x, gy, gw, None)
    np.testing.assert_array_equal(gw, 2 * once)


def test_bits_are_the_same_on_any_number_of_threads():
    spec = spec_of(100, 20, 6, 6, 20, 2, 5)
    x, w, b, gy = drawn(spec, np.random.default_rng(3))
    first = spec_of(100, 1, 9, 9, 20, 0, 5)
    images, weights, _, tops = drawn(first, np.random.default_rng(4))
    results = []
    for n_threads in (1, 2, 3, 16):
        set_threads(n_threads)
        y, gx, gw, gb, of_few = (np.empty_like(array) for array in (gy, x, w, b, weights))
        plan = Convolution(spec)
        plan.forward(x, w, b, y)
        plan.backward_data(gy, w, gx)
        plan.backward_weights(x, gy, gw, gb, overwrite=True)
        few = SeparateWeightGradient(Portable(first), first, FewInputs(first))
        few.backward_weights(images, tops, of_few, None, overwrite=True)
        results.append((y, gx, gw, gb, of_few))
    set_threads(1)
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_image_gives_the_same_bits_in_any_batch():
    """What 1 rank and 4 compute of an image is alike."""
    whole, part = (spec_of(n, 20, 12, 12, 50, 0, 5) for n in (64, 16))
    x, w, b, gy = drawn(whole, np.random.default_rng(5))
    y, some, gx, of_some = np.empty_like(gy), np.empty_like(gy[:16]), np.empty_like(x), np.empty_like(x[:16])
    Convolution(whole).forward(x, w, b, y)
    Convolution(part).forward(x[16:32].copy(), w, b, some)
    Convolution(whole).backward_data(gy, w, gx)
    Convolution(part).backward_data(gy[16:32].copy(), w, of_some)
    np.testing.assert_array_equal(y[16:32], some)
    np.testing.assert_array_equal(gx[16:32], of_some)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("spec", [spec_of(70, 20, 12, 12, 50, 0, 5), spec_of(33, 3, 12, 12, 20, 2, 5)])
def test_working_memory_is_what_was_told(spec, monkeypatch):
    x, w, b, gy = drawn(spec, np.random.default_rng(6))
    plan = Convolution(spec) if spec.in_shape[1] > 3 else SeparateWeightGradient(Portable(spec), spec, FewInputs(spec))
    monkeypatch.setattr(arrays, "_held", type("Held", (), {})())
    told = plan.working_bytes()
    if isinstance(plan, Convolution):
        plan.forward(x, w, b, gy.copy())
        plan.backward_data(gy, w, x.copy())
    plan.backward_weights(x, gy, w.copy(), b.copy())
    assert {name: memory.nbytes for name, memory in vars(arrays._held).items()} == told


def test_arrays_of_another_size_are_refused():
    spec = spec_of(16, 20, 6, 6, 10, 0, 5)
    x, w, b, gy = drawn(spec, np.random.default_rng(7))
    plan = Convolution(spec)
    first = spec_of(16, 1, 6, 6, 20, 0, 5)
    images, weights, _, tops = drawn(first, np.random.default_rng(7))
    of_few = SeparateWeightGradient(Portable(first), first, FewInputs(first))
    for call in (lambda: plan.forward(x[1:], w, b, gy), lambda: plan.forward(x, w, b[1:], gy),
                 lambda: plan.forward(x, w, b, gy[1:]), lambda: plan.backward_data(gy, w[1:], x),
                 lambda: plan.backward_weights(x, gy[1:], w, b), lambda: plan.backward_weights(x, gy, w, b[1:]),
                 lambda: of_few.backward_weights(images[1:], tops, weights, None),
                 lambda: of_few.backward_weights(images, tops[1:], weights, None)):
        with pytest.raises(LayerError, match="expected a blob of"):
            call()


@pytest.mark.skipif(not is_fast(), reason="needs AVX2 or AVX-512")
def test_where_it_is_taken():
    assert supports(spec_of(64, 20, 12, 12, 50, 0, 5))  # LeNet's second convolution
    assert isinstance(cpu.convolution(spec_of(64, 20, 12, 12, 50, 0, 5)), Convolution)
    assert isinstance(cpu.convolution(spec_of(64, 1, 28, 28, 20, 0, 5)).gradient, few_inputs.FewInputs)
    for other in ({"n_output": 48}, {"c": 32}, {"n": 8}, {"stride": 2}, {"dilation": 2}, {"pad": 5}, {"n_output": 53},
                  {"n_output": 40, "group": 2}, {"kernel": 2}):
        assert not supports(spec_of(**{"n": 64, "c": 20, "height": 12, "width": 12, "n_output": 50, "pad": 0,
                                       "kernel": 5, **other}))


@compiled
def _turn(x, at, step, shape, y, to, stride):
    transpose(x, at, step, shape, y, to, stride)


@pytest.mark.parametrize(("n_rows", "n_columns"), [*product((1, 15, 16, 33), (1, 16, 31, 50)), (0, 5), (5, 0)])
def test_a_matrix_is_turned_within_larger_ones(n_rows, n_columns):
    x = np.random.default_rng(n_rows).standard_normal((n_rows + 1, n_columns + 3)).astype(np.float32)
    y = np.full((n_columns + 2, n_rows + 5), np.nan, np.float32)
    wanted = y.copy()
    wanted[1:n_columns + 1, 4:4 + n_rows] = x[:n_rows, 2:2 + n_columns].T
    _turn(x.reshape(-1), 2, n_columns + 3, (n_rows, n_columns), y.reshape(-1), n_rows + 9, n_rows + 5)
    np.testing.assert_array_equal(y, wanted)
