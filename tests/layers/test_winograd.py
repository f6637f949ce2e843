"""Winograd's convolutions against sums in float64, on sizes that are no multiple of a tile, on one and two threads."""

import numpy as np
import pytest

from scaffe.layers.kernels.cpu import set_threads
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.cpu.onednn.winograd import STRIP_BYTES, Winograd, is_faster
from scaffe.layers.kernels.specs import ConvSpec

needs_onednn = pytest.mark.skipif(library() is None, reason="needs oneDNN")


def spec_of(n, c, height, width, n_output, pad=1, kernel=3, stride=1, dilation=1, group=1):
    return ConvSpec((n, c, height, width), n_output, (kernel,) * 2, (stride,) * 2, (pad,) * 2, (dilation,) * 2, group)


def expected(spec, x, w, b, slope, added):
    """The formula, in float64: sums over windows of the padded images."""
    (top, left), wide = spec.pad, x.astype(np.float64)
    padded = np.pad(wide, ((0, 0), (top, top), (left, left), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    y = np.einsum("nhwcij,ocij->nhwo", windows, w.astype(np.float64)) + b + (0 if added is None else added)
    return y if slope is None else np.where(y > 0, y, slope * y)


@needs_onednn
@pytest.mark.parametrize(("n", "c", "height", "width", "n_output", "pad"), [
    (1, 1, 1, 1, 1, 1), (2, 3, 4, 4, 5, 1), (3, 7, 5, 9, 2, 1), (1, 4, 13, 6, 33, 2), (5, 16, 7, 7, 16, 1),
    (2, 17, 3, 3, 3, 0), (1, 2, 21, 4, 3, 0), (4, 5, 8, 11, 6, 2)])
@pytest.mark.parametrize(("slope", "adds"), [(None, False), (0.0, True), (0.25, False), (None, True)])
def test_every_output_is_the_formulas(n, c, height, width, n_output, pad, slope, adds):
    rng = np.random.default_rng(n * c + height)
    spec = spec_of(n, c, height, width, n_output, pad)
    x, w, b = (rng.standard_normal(shape).astype(np.float32)
               for shape in ((n, height, width, c), spec.weight_shape, (n_output,)))
    tops = (n, *spec.out_spatial, n_output)
    added = rng.standard_normal(tops).astype(np.float32) if adds else None
    plan, y = Winograd(library(), spec, slope, adds), np.full(tops, np.nan, np.float32)
    plan.take(w, b)
    plan.forward(x, y, added)
    np.testing.assert_allclose(y, expected(spec, x, w, b, slope, added), rtol=0, atol=2e-5 * (9 * c) ** 0.5)


@needs_onednn
def test_several_strips_the_last_one_shorter_on_two_threads():
    spec = spec_of(1, 40, 42, 41, 33)
    plan = Winograd(library(), spec, 0.0, False)
    assert 4 * plan._v.size <= STRIP_BYTES[1]
    assert plan._n_rows % plan._strip
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 42, 41, 40), spec.weight_shape))
    plan.take(w, np.zeros(33, np.float32))
    tops = [np.full((1, 42, 41, 33), np.nan, np.float32) for _ in range(2)]
    try:
        for n_threads, y in enumerate(tops, 1):
            set_threads(n_threads)
            plan.forward(x, y)
    finally:
        set_threads(1)
    np.testing.assert_array_equal(*tops)
    np.testing.assert_allclose(tops[0], expected(spec, x, w, 0, 0.0, None), rtol=0, atol=6e-4)


def test_where_it_is_used():
    assert is_faster(spec_of(1, 64, 56, 56, 64))
    assert not any(is_faster(spec) for spec in (
        spec_of(1, 16, 56, 56, 64), spec_of(1, 64, 56, 56, 16), spec_of(1, 512, 7, 7, 512),
        spec_of(1, 64, 56, 56, 64, 3), spec_of(1, 64, 56, 56, 64, kernel=5), spec_of(1, 64, 56, 56, 64, stride=2),
        spec_of(1, 64, 56, 56, 64, group=2), spec_of(1, 64, 56, 56, 64, dilation=2)))
