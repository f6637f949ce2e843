"""Our products of pixels and panels of weights, and the convolutions made of them, against sums in float64."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.jit.simd import HAS_AVX512
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu import set_threads
from scaffe.layers.kernels.cpu.conv import panels
from scaffe.layers.kernels.cpu.conv.panels import Pointwise, in_panels, multiply_matrices, rows_at_once, supports
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.cpu.onednn.winograd import tiling
from scaffe.layers.kernels.cpu.onednn.winograd.plans import Inference
from scaffe.layers.kernels.specs import ConvSpec

needs_onednn = pytest.mark.skipif(library() is None, reason="needs oneDNN")
OUTSIDE = 77.0


def spec_of(n, c, image, n_output, stride=(1, 1), **others):
    kernel = others.pop("kernel", (1,) * len(image))
    stride = stride[: len(image)]
    zeros, ones = (0,) * len(image), (1,) * len(image)
    return ConvSpec((n, c, *image), n_output, kernel, stride, others.pop("pad", zeros), ones, **others)


def drawn(spec):
    """Bottom and what is added as pixels, weights, bias."""
    rng = np.random.default_rng(spec.in_shape[1] + spec.in_shape[2])
    return [rng.standard_normal(shape).astype(np.float32) for shape in (
        (spec.in_shape[0], *spec.in_shape[2:], spec.in_shape[1]), spec.weight_shape, (spec.n_output,),
        (spec.in_shape[0], *spec.out_spatial, spec.n_output))]


def expected(spec, x, w, b, slope, added):
    read = x[(slice(None), *(slice(None, None, step) for step in spec.stride))].astype(np.float64)
    y = read @ w.reshape(w.shape[:2]).astype(np.float64).T + b + (0 if added is None else added)
    return y if slope is None else np.where(y > 0, y, slope * y)


@pytest.fixture(params=[1, 2, 3])
def threads(request, monkeypatch):
    """Parts as small as can be, on some threads."""
    monkeypatch.setattr(panels, "LEAST_PRODUCTS", 1)
    set_threads(request.param)
    yield request.param
    set_threads(1)


@pytest.mark.parametrize(("n", "c", "image", "n_output", "stride"), [
    (1, 1, (7, 7), 32, (1, 1)), (2, 3, (3, 3), 64, (1, 1)), (3, 37, (1, 8), 96, (1, 1)), (1, 64, (5, 2), 32, (1, 1)),
    (1, 300, (7, 1), 64, (1, 1)), (2, 5, (14, 13), 32, (2, 2)), (1, 33, (15, 17), 64, (2, 1)),
    (3, 4, (9, 29), 32, (3, 2)),
    (2, 3, (11,), 32, (1,)), (1, 6, (2, 3, 4), 64, (1, 1, 1))])
@pytest.mark.parametrize(("slope", "adds"), [(None, None), (0.0, "other"), (0.25, "in place"), (0.0, None)])
def test_every_output_is_the_formulas(n, c, image, n_output, stride, slope, adds, threads, monkeypatch):
    monkeypatch.setattr(panels, "GROUP_BYTES", 4 * c * 32)
    spec = spec_of(n, c, image, n_output, stride)
    x, w, b, added = drawn(spec)
    around = np.full(added.size + 64, OUTSIDE, np.float32)
    y = around[32:-32].reshape(added.shape)
    y[...] = added if adds == "in place" else np.nan
    plan = Pointwise(spec, slope)
    plan.set_weights(w, b)
    plan.forward(x, y, {"other": added, "in place": y, None: None}[adds])
    np.testing.assert_allclose(y, expected(spec, x, w, b, slope, added if adds else None), rtol=0, atol=1e-5 * c**0.5)
    assert (around[:32] == OUTSIDE).all() and (around[-32:] == OUTSIDE).all()


def test_groups_of_panels_and_threads_do_not_change_a_bit(monkeypatch):
    spec, found = spec_of(2, 19, (9, 6), 128), []
    x, w, b, added = drawn(spec)
    monkeypatch.setattr(panels, "LEAST_PRODUCTS", 1)
    try:
        for n_threads, n_bytes in ((1, 1), (1, 1 << 20), (2, 1), (3, 1 << 20)):
            set_threads(n_threads)
            monkeypatch.setattr(panels, "GROUP_BYTES", n_bytes)
            plan, y = Pointwise(spec, 0.0), np.empty_like(added)
            plan.set_weights(w, b)
            plan.forward(x, y, added)
            found.append(y)
    finally:
        set_threads(1)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_numbers_that_are_none_are_passed_on():
    spec = spec_of(1, 2, (7, 1), 32)
    x, w, b, _ = drawn(spec)
    x[0, 3, 0, 1] = np.nan
    plan, y = Pointwise(spec, 0.0), np.zeros((1, 7, 1, 32), np.float32)
    plan.set_weights(w, b)
    plan.forward(x, y)
    assert np.isnan(y[0, 3]).all() and not np.isnan(np.delete(y, 3, axis=1)).any()


def test_blobs_of_other_sizes_are_refused():
    spec = spec_of(1, 2, (7, 1), 32)
    plan, x, y = Pointwise(spec, None), np.zeros(14, np.float32), np.zeros(224, np.float32)
    for arrays in ((x[1:], y), (x, y[1:]), (x, y, y[1:])):
        with pytest.raises(LayerError, match="expected a blob of"):
            plan.forward(*arrays)


@pytest.mark.parametrize(("n_rows", "k", "n_outputs"), [(1, 5, 32), (7, 3, 64), (8, 1, 32), (16, 40, 96), (23, 9, 32)])
def test_matrices_of_a_group_of_channels(n_rows, k, n_outputs):
    rng, n_products, rows = np.random.default_rng(n_rows), 5, n_rows + 2
    v = rng.standard_normal((n_products, rows, 2 * k)).astype(np.float32)
    w = rng.standard_normal((n_products, k, n_outputs)).astype(np.float32)
    m = np.full((n_products, rows, 3 * n_outputs), OUTSIDE, np.float32)
    packed = np.ascontiguousarray(in_panels(w)).reshape(-1)
    for first, stop in ((0, 2), (2, n_products)):
        multiply_matrices(v.reshape(-1)[k:], (n_rows, rows, 2 * k), k, packed, np.zeros(n_outputs, np.float32),
                          m.reshape(-1)[n_outputs:], 3 * n_outputs, first, stop)
    ours = m[:, :n_rows, n_outputs : 2 * n_outputs]
    np.testing.assert_allclose(ours, v[:, :n_rows, k:].astype(float) @ w.astype(float), rtol=0, atol=1e-5 * k**0.5)
    ours[...] = OUTSIDE
    assert (m == OUTSIDE).all()


@needs_onednn
@pytest.mark.parametrize(("n", "c", "height", "width", "n_output", "group"), [
    (1, 5, 14, 14, 32, 1), (2, 6, 9, 7, 128, 2), (5, 8, 13, 10, 96, 1)])
def test_winograds_convolutions_are_alike_by_either_products(n, c, height, width, n_output, group, monkeypatch):
    spec = ConvSpec((n, c, height, width), n_output, (3, 3), (1, 1), (1, 1), (1, 1), group)
    x, w, b, added = drawn(spec)
    found = []
    for is_ours in (True, False):
        monkeypatch.setattr(tiling, "is_fast", lambda is_ours=is_ours: is_ours)
        plan, y = Inference(library(), spec, 0.0), np.full(added.shape, np.nan, np.float32)
        assert isinstance(plan._filtering._products, tiling.PanelProducts if is_ours else tiling.OnednnProducts)
        plan.set_weights(w, b)
        plan.forward(x, y, added)
        found.append(y)
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=2e-5 * c**0.5)


@needs_onednn
def test_which_convolutions_run_so(monkeypatch):
    monkeypatch.setattr(panels, "HAS_AMX", False)
    monkeypatch.setattr(panels, "is_fast", lambda: True)
    fits = spec_of(1, 8, (7, 7), 64)
    assert isinstance(cpu.inference_convolution(fits, None, adds=True), Pointwise)
    others = [spec_of(1, 8, (7, 7), 40), spec_of(1, 8, (7, 7), 64, kernel=(3, 3)), spec_of(1, 8, (7, 7), 64, group=2),
              spec_of(1, 8, (7, 7), 64, pad=(1, 0)), spec_of(1, 8, (2, 3), 64), spec_of(1, 8, (9,), 64, (2,))]
    assert supports(fits) and not any(supports(spec) for spec in others)
    monkeypatch.setattr(panels, "is_fast", lambda: False)
    assert not isinstance(cpu.inference_convolution(fits, None, adds=True), Pointwise)


def test_rows_are_taken_by_sevens_where_no_others_are_left():
    assert [rows_at_once(n) for n in (7, 49, 16, 30)] == ([7, 7, 8, 8] if HAS_AVX512 else [6] * 4)
