"""Gradients of a first convolution's weights, against sums in float64: strides, paddings, lines of all lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu import arrays as workspace
from scaffe.layers.kernels.cpu import set_threads
from scaffe.layers.kernels.cpu.conv import first_weights
from scaffe.layers.kernels.cpu.conv.first_weights import FirstWeights
from scaffe.layers.kernels.cpu.conv.panels import is_fast
from scaffe.layers.kernels.cpu.conv.portable import Convolution as Portable
from scaffe.layers.kernels.cpu.conv.weight_gradients import SeparateWeightGradient
from scaffe.layers.kernels.specs import ConvSpec
from tests.layers.test_winograd import drawn, windows

SPECS = {
    "one image, one pixel": ConvSpec((1, 3, 3, 5), 32, (3, 5), (1, 1), (0, 0), (1, 1)),
    "cifar10": ConvSpec((17, 3, 9, 8), 32, (5, 5), (1, 1), (2, 2), (1, 1)),
    "CaffeNet": ConvSpec((3, 3, 27, 31), 96, (11, 11), (4, 4), (0, 0), (1, 1)),
    "ResNet": ConvSpec((5, 3, 20, 17), 64, (7, 7), (2, 2), (3, 3), (1, 1)),
    "VGG": ConvSpec((33, 3, 6, 7), 64, (3, 3), (1, 1), (1, 1), (1, 1)),
    "oblong": ConvSpec((2, 4, 11, 13), 32, (2, 6), (3, 2), (4, 1), (1, 1)),
    "more padding than image": ConvSpec((2, 2, 1, 2), 32, (4, 4), (1, 3), (3, 2), (1, 1)),
    "a number in a line": ConvSpec((2, 1, 5, 6), 32, (3, 1), (1, 1), (1, 0), (1, 1)),
}


def expected(spec, x, gy):
    """Each product of the formula, in float64."""
    steps, (height, width) = spec.stride, spec.out_spatial
    seen = windows(spec, x)[:, ::steps[0], ::steps[1]][:, :height, :width]
    return np.einsum("nhwcij,nhwo->ocij", seen, gy.astype(np.float64))


@pytest.fixture(autouse=True)
def used_memory():
    """Working memory that another layer has left full of what is no number."""
    for name in ("bottom", "weights"):
        workspace.workspace(name, 1 << 22).view(np.float32)[:] = np.nan
    yield
    set_threads(1)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_they_are_the_formulas_with_the_same_bits_on_any_number_of_threads(spec):
    x, w, b, gy = drawn(spec, np.random.default_rng(sum(spec.in_shape)))
    wanted, n_sums, found = expected(spec, x, gy), gy[..., 0].size, []
    for n_threads in (1, 2, 3, 40):
        set_threads(n_threads)
        plan = SeparateWeightGradient(Portable(spec), spec, FirstWeights(spec))
        gw, gb = np.full_like(w, np.nan), np.full_like(b, np.nan)
        plan.backward_weights(x, gy, gw, gb, overwrite=True)
        np.testing.assert_allclose(gw, wanted, rtol=0, atol=1e-5 * n_sums ** 0.5)
        np.testing.assert_allclose(gb, gy.astype(np.float64).sum((0, 1, 2)), rtol=0, atol=1e-6 * n_sums)
        found.append(gw.copy())
        plan.backward_weights(x, gy, gw, None)
        np.testing.assert_array_equal(gw, 2 * found[-1])
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_what_a_tile_reads_beyond_a_line_does_no_harm():
    """Its neighbours are infinite there."""
    spec = SPECS["cifar10"]
    x, w, _, gy = drawn(spec, np.random.default_rng(8))
    x[:, :, -1] = np.inf
    gw = np.zeros_like(w)
    with np.errstate(invalid="ignore"):
        plan = SeparateWeightGradient(Portable(spec), spec, FirstWeights(spec))
        plan.backward_weights(x, gy, gw, None, overwrite=True)
    assert np.isfinite(gw[:, :, :, 0]).all()  # the filter's first column never lies on the image's last


@pytest.mark.parametrize("n_threads", [1, 3])
def test_working_memory_is_what_was_told(n_threads, monkeypatch):
    set_threads(n_threads)
    spec = SPECS["VGG"]
    x, w, b, gy = drawn(spec, np.random.default_rng(6))
    plan = SeparateWeightGradient(Portable(spec), spec, FirstWeights(spec))
    monkeypatch.setattr(workspace, "_held", type("Held", (), {})())
    told = plan.working_bytes()
    plan.backward_weights(x, gy, w, b)
    assert {name: memory.nbytes for name, memory in vars(workspace._held).items()} == told


def test_arrays_of_another_size_are_refused():
    spec = SPECS["ResNet"]
    x, w, b, gy = drawn(spec, np.random.default_rng(7))
    plan = SeparateWeightGradient(Portable(spec), spec, FirstWeights(spec))
    for arrays in ((x[1:], gy, w, b), (x, gy[1:], w, b), (x, gy, w[1:], b), (x, gy, w, b[1:])):
        with pytest.raises(LayerError, match="expected a blob of"):
            plan.backward_weights(*arrays)


@pytest.mark.skipif(not is_fast(), reason="needs AVX2 or AVX-512")
def test_where_it_is_taken():
    for name in ("cifar10", "CaffeNet", "ResNet", "VGG"):
        assert isinstance(cpu.convolution(SPECS[name]).gradient, FirstWeights), name
    usual = SPECS["ResNet"]
    for other in ({"n_output": 20}, {"in_shape": (5, 5, 20, 17)}, {"dilation": (2, 1)},
                  {"kernel": (1, 1), "pad": (0, 0)}, {"in_shape": (5, 1, 20, 17), "kernel": (3, 3)},
                  {"in_shape": (0, 3, 20, 17)}, {"in_shape": (5, 4, 20, 17), "group": 2},
                  {"dtype": np.dtype(np.float64)}):
        assert not first_weights.supports(replace(usual, **other)), other
