"""1x1 convolutions as products of matrices, against sums in float64."""

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.onednn import convolution
from scaffe.layers.kernels.cpu.onednn.convolution import Convolution, Pointwise, is_pointwise
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.specs import ConvSpec
from tests.layers.rig import Rig
from tests.layers.test_winograd import drawn, needs_onednn, spec_of


def pixels(n, c, side, n_output, **changes):
    return spec_of(n, c, side, side, n_output, 0, kernel=1, **changes)


@needs_onednn
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(("n", "c", "side", "n_output"), [(1, 1, 8, 1), (2, 3, 7, 5), (5, 33, 4, 17), (3, 130, 5, 65)])
@pytest.mark.parametrize("slope", [None, 0.25])
def test_every_pass_is_the_formulas(n, c, side, n_output, is_large, slope, monkeypatch):
    monkeypatch.setattr(convolution, "FEWEST_WEIGHTS", 0 if is_large else 1 << 40)
    spec = pixels(n, c, side, n_output)
    x, w, b, gy = drawn(spec, np.random.default_rng(c))
    y, gx, gw, gb = (np.full_like(array, np.nan) for array in (gy, x, w, b))
    plan = Pointwise(library(), spec)
    plan.forward(x, w, b, y, slope)
    plan.backward_data(gy, w, gx)
    plan.backward_weights(x, gy, gw, gb, overwrite=True)
    wide, rows, tops = (np.float64(a.reshape(-1, a.shape[-1])) for a in (w.reshape(n_output, c), x, gy))
    sums = rows @ wide.T + b
    for got, wanted in ((y, sums if slope is None else np.where(sums > 0, sums, slope * sums)), (gx, tops @ wide),
                        (gw, tops.T @ rows), (gb, tops.sum(0))):
        np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=0, atol=2e-6 * max(np.abs(wanted).max(), 4))
    once = gw.copy(), gb.copy()
    plan.backward_weights(x, gy, gw, gb)
    np.testing.assert_array_equal(gw, 2 * once[0])
    np.testing.assert_array_equal(gb, 2 * once[1])


@needs_onednn
def test_without_a_bias():
    spec = ConvSpec((2, 6, 8, 8), 5, (1, 1), (1, 1), (0, 0), (1, 1), bias=False)
    x, w, _, gy = drawn(spec, np.random.default_rng(0))
    y, gw = np.empty_like(gy), np.empty_like(w)
    plan = Pointwise(library(), spec)
    plan.forward(x, w, None, y)
    plan.backward_weights(x, gy, gw, None, overwrite=True)
    np.testing.assert_allclose(y, np.float64(x) @ w.reshape(5, 6).T, atol=1e-5)
    np.testing.assert_allclose(gw.reshape(5, 6), gy.reshape(-1, 5).T @ np.float64(x.reshape(-1, 6)), atol=1e-4)


def test_where_it_is_used():
    assert is_pointwise(pixels(1, 3, 8, 5))
    assert is_pointwise(ConvSpec((2, 3, 64), 5, (1,), (1,), (0,), (1,)))
    assert not any(is_pointwise(spec) for spec in (
        pixels(1, 3, 7, 5), pixels(1, 3, 16, 5, stride=2), pixels(2, 4, 8, 6, group=2), spec_of(1, 3, 8, 8, 5, 1),
        spec_of(1, 3, 8, 8, 5, 1, kernel=1)))


@needs_onednn
@pytest.mark.parametrize(("stride", "kind"), [(1, Pointwise), (2, Convolution)])
def test_which_plan_a_layer_makes(stride, kind):
    prototxt = f"type: 'Convolution' convolution_param {{ num_output: 5 kernel_size: 1 stride: {stride} }}"
    assert type(Rig(prototxt, [np.zeros((2, 3, 16, 16))], dtype=np.float32, kernels=cpu).layer._plan) is kind


@needs_onednn
@pytest.mark.parametrize("short", range(3))
def test_a_gradient_pass_refuses_arrays_that_are_too_short(short):
    spec = pixels(2, 6, 8, 5)
    x, w, _, gy = drawn(spec, np.random.default_rng(0))
    arrays = [array.reshape(-1) for array in (x, gy, w)]
    arrays[short] = arrays[short][:-1]
    with pytest.raises(LayerError):
        Pointwise(library(), spec).backward_weights(*arrays, None, overwrite=True)
