"""Winograd's convolutions against sums in float64, on sizes that are no multiple of a tile, on one and two threads."""

import numpy as np
import pytest

from scaffe.jit import checks_bounds
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu import arrays, set_threads
from scaffe.layers.kernels.cpu.conv import weight_gradients
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.cpu.onednn.winograd import tiling
from scaffe.layers.kernels.cpu.onednn.winograd import tiling as of_winograd
from scaffe.layers.kernels.cpu.onednn.winograd.plans import Inference, Training
from scaffe.layers.kernels.cpu.onednn.winograd.tiling import Tiling, is_faster, is_faster_in_training
from scaffe.layers.kernels.cpu.threads.parts import set_parts
from scaffe.layers.kernels.specs import ConvSpec
from tests.layers.rig import Rig

needs_onednn = pytest.mark.skipif(library() is None, reason="needs oneDNN")
SHAPES = pytest.mark.parametrize(("n", "c", "height", "width", "n_output", "pad"), [
    (1, 1, 1, 1, 1, 1), (2, 3, 4, 4, 5, 1), (3, 7, 5, 9, 2, 1), (1, 4, 13, 6, 33, 2), (5, 16, 7, 7, 16, 1),
    (2, 17, 3, 3, 3, 0), (1, 2, 21, 4, 3, 0), (4, 5, 8, 11, 6, 2)])
TAPS = pytest.mark.parametrize("taps", [3, 5])


def spec_of(n, c, height, width, n_output, pad=1, kernel=3, stride=1, dilation=1, group=1):
    return ConvSpec((n, c, height, width), n_output, (kernel,) * 2, (stride,) * 2, (pad,) * 2, (dilation,) * 2, group)


def windows(spec, x):
    """Each output's inputs (N, H', W', C, *kernel) in float64: windows of the padded images."""
    (top, left), wide = spec.pad, x.astype(np.float64)
    padded = np.pad(wide, ((0, 0), (top, top), (left, left), (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(padded, spec.kernel, axis=(1, 2))


def whole(spec, w):
    """The weights of a convolution in groups as those of one without, with zeros between groups, in float64."""
    every = np.zeros((spec.n_output, spec.in_shape[1], *spec.kernel))
    n_output, n_in = spec.n_output // spec.group, w.shape[1]
    for g in range(spec.group):
        own = slice(g * n_output, (g + 1) * n_output)
        every[own, g * n_in : (g + 1) * n_in] = w[own]
    return every


def expected(spec, x, w, b, slope, added):
    """The formula, in float64."""
    y = np.einsum("nhwcij,ocij->nhwo", windows(spec, x), whole(spec, w)) + b + (0 if added is None else added)
    return y if slope is None else np.where(y > 0, y, slope * y)


def expected_gradients(spec, x, w, gy):
    """Those of bottom and weights: each product of the formula, the other way round."""
    gw = np.einsum("nhwcij,nhwo->ocij", windows(spec, x), gy.astype(np.float64))
    n_output, n_in = spec.n_output // spec.group, spec.in_shape[1] // spec.group
    own = np.concatenate([gw[g * n_output : (g + 1) * n_output, g * n_in : (g + 1) * n_in] for g in range(spec.group)])
    (height, width), (top, left) = gy.shape[1:3], spec.pad
    gx = np.zeros((x.shape[0], x.shape[1] + 2 * top, x.shape[2] + 2 * left, x.shape[3]))
    for i in range(spec.kernel[0]):
        for j in range(spec.kernel[1]):
            gx[:, i : i + height, j : j + width] += gy.astype(np.float64) @ whole(spec, w)[:, :, i, j]
    return gx[:, top : top + x.shape[1], left : left + x.shape[2]], own


def drawn(spec, rng):
    """A bottom, weights, a bias and a gradient of the top."""
    (n, c, height, width), tops = spec.in_shape, (spec.in_shape[0], *spec.out_spatial, spec.n_output)
    return (rng.standard_normal(shape).astype(np.float32)
            for shape in ((n, height, width, c), spec.weight_shape, (spec.n_output,), tops))


@needs_onednn
@TAPS
@SHAPES
@pytest.mark.parametrize(("slope", "adds"), [(None, False), (0.0, True), (0.25, False), (None, True)])
def test_every_output_is_the_formulas(n, c, height, width, n_output, pad, slope, adds, taps):
    spec = spec_of(n, c, height, width, n_output, pad + taps // 4, taps)
    rng = np.random.default_rng(n * c + height)
    x, w, b, added = drawn(spec, rng)
    plan, y = Inference(library(), spec, slope), np.full(added.shape, np.nan, np.float32)
    plan.set_weights(w, b)
    plan.forward(x, y, added if adds else None)
    np.testing.assert_allclose(y, expected(spec, x, w, b, slope, added if adds else None), rtol=0,
                               atol=2e-5 * taps * c ** 0.5)


@pytest.fixture(params=["gradient by Winograd", "gradient direct"])
def gradients(request, monkeypatch):
    """Both ways to the gradient of weights, whatever the number of channels."""
    monkeypatch.setattr(tiling, "FEWEST_PRODUCTS_OF_GRADIENTS", 0 if request.param == "gradient by Winograd" else 1e9)


@needs_onednn
@pytest.mark.usefixtures("gradients")
@TAPS
@SHAPES
@pytest.mark.parametrize("group", [1, 3])
def test_training_passes_are_the_formulas(n, c, height, width, n_output, pad, group, taps):
    spec = spec_of(n, c * group, height, width, n_output * group, pad + taps // 4, taps, group=group)
    x, w, b, gy = drawn(spec, np.random.default_rng(n * c + height))
    plan = Training(library(), spec)
    y, gx, gw, gb = (np.full_like(array, np.nan) for array in (gy, x, w, b))
    plan.forward(x, w, b, y, 0.5)
    plan.backward_data(gy, w, gx)
    plan.backward_weights(x, gy, gw, gb, overwrite=True)
    wanted_gx, wanted_gw = expected_gradients(spec, x, w, gy)
    n_sums = n * height * width
    np.testing.assert_allclose(y, expected(spec, x, w, b, 0.5, None), rtol=0, atol=2e-5 * taps * c ** 0.5)
    np.testing.assert_allclose(gx, wanted_gx, rtol=0, atol=2e-5 * taps * n_output ** 0.5)
    np.testing.assert_allclose(gw, wanted_gw, rtol=0, atol=7e-6 * taps * n_sums ** 0.5)
    np.testing.assert_allclose(gb, gy.astype(np.float64).sum((0, 1, 2)), rtol=0, atol=1e-6 * n_sums)
    once = gw.copy(), gb.copy()
    plan.backward_weights(x, gy, gw, gb)
    np.testing.assert_array_equal(gw, 2 * once[0])
    np.testing.assert_array_equal(gb, 2 * once[1])


@needs_onednn
@TAPS
@pytest.mark.parametrize("n_threads", [1, 2])
def test_several_blocks_the_last_one_shorter(n_threads, taps):
    """A plan for other shapes has used the working memory before, and left numbers that are none."""
    spec = spec_of(7, 40, 42, 41, 96, taps // 2, taps)
    x, w, b, gy = drawn(spec, np.random.default_rng(0))
    plan = Training(library(), spec)
    y, gx, gw = (np.full_like(array, np.nan) for array in (gy, x, w))
    assert plan._forward._tiling.n_rows % plan._forward._block
    assert len({stop - first for first, stop in plan.gradient._blocks}) == 2
    other = Training(library(), spec_of(9, 44, 42, 41, 96, taps // 2, taps))
    nothing, weights = (np.full(shape, np.nan, np.float32) for shape in ((9, 42, 41, 44), (96, 44, taps, taps)))
    try:
        set_threads(n_threads)
        other.forward(nothing, weights, None, np.empty((9, 42, 41, 96), np.float32))
        plan.forward(x, w, b, y)
        plan.backward_data(gy, w, gx)
        other.backward_weights(nothing, np.full((9, 42, 41, 96), np.nan, np.float32), weights, None, overwrite=True)
        plan.backward_weights(x, gy, gw, None, overwrite=True)
    finally:
        set_threads(1)
    wanted_gx, wanted_gw = expected_gradients(spec, x, w, gy)
    for got, wanted in ((y, expected(spec, x, w, b, None, None)), (gx, wanted_gx), (gw, wanted_gw)):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-5 * np.abs(wanted).max())


@needs_onednn
@pytest.mark.skipif(checks_bounds(), reason="native code has nobody to raise to")
@TAPS
@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize(("n_output", "group", "is_ours"), [(33, 1, False), (64, 1, True), (128, 2, True)])
def test_prepared_calls_compute_every_block(n_threads, taps, n_output, group, is_ours, monkeypatch):
    """Strips of one row of tiles; working memory that is full of what is no number, and is written over afterwards."""
    monkeypatch.setattr(tiling, "BLOCK_BYTES", (1, 1))
    monkeypatch.setattr(tiling, "is_fast", lambda: is_ours)
    spec = spec_of(2, 40, 9, 14, n_output, taps // 2, taps, group=group)
    x, w, b, added = drawn(spec, np.random.default_rng(taps))
    try:
        set_threads(n_threads)
        plan, y = Inference(library(), spec, 0.25), np.full_like(added, np.nan)
        assert isinstance(plan._filtering._products, tiling.PanelProducts) == is_ours
        plan.set_weights(w, b)
        for name in ("bottom", "top", "scratch"):
            arrays.workspace(name, 1 << 20).view(np.float32)[:] = np.nan
        calls = plan.prepare_calls(x.reshape(-1), y.reshape(-1), added.reshape(-1))
        assert len(calls) == 2 * -(-9 // 4) * (2 + group)
        assert calls.run() == len(calls)
    finally:
        set_threads(1)
    wanted = expected(spec, x, w, b, 0.25, added)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=3e-5 * np.abs(wanted).max())


@needs_onednn
@TAPS
def test_transforms_on_one_and_two_threads_compute_the_same_bits(taps):
    """oneDNN's products between them may be summed in another order on two."""
    spec = spec_of(2, 40, 42, 41, 33, taps // 2, taps)
    x, w, b, gy = drawn(spec, np.random.default_rng(0))
    plan, results = Training(library(), spec), []
    set_threads(1)
    try:
        for n_threads in (1, 2):
            set_parts(n_threads)
            y, gx = np.empty_like(gy), np.empty_like(x)
            plan.forward(x, w, b, y)
            plan.backward_data(gy, w, gx)
            results.append((y, gx))
    finally:
        set_threads(1)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


def test_where_it_is_used():
    assert is_faster(spec_of(1, 64, 56, 56, 64))
    assert is_faster_in_training(spec_of(4, 64, 56, 56, 64))
    assert not is_faster_in_training(spec_of(3, 64, 56, 56, 64))
    assert is_faster_in_training(spec_of(4, 384, 14, 14, 384, group=2))
    assert is_faster_in_training(spec_of(100, 32, 16, 16, 32, 2, kernel=5))
    assert not is_faster_in_training(spec_of(64, 20, 12, 12, 50, 0, kernel=5))  # LeNet's second
    assert is_faster_in_training(spec_of(4, 96, 27, 27, 256, 2, kernel=5, group=2))
    assert not is_faster_in_training(spec_of(12, 512, 8, 8, 512))  # 48 tiles
    assert not any(is_faster(spec) for spec in (
        spec_of(1, 16, 56, 56, 64), spec_of(1, 64, 56, 56, 16), spec_of(1, 512, 7, 7, 512),
        spec_of(1, 64, 56, 56, 64, 3), spec_of(1, 64, 56, 56, 64, 5, kernel=5), spec_of(1, 64, 56, 56, 64, stride=2),
        spec_of(1, 64, 56, 56, 64, 3, kernel=7), spec_of(1, 1, 28, 28, 20, 0, kernel=5),
        spec_of(1, 64, 56, 56, 64, group=2), spec_of(1, 64, 56, 56, 64, dilation=2)))


@needs_onednn
@pytest.mark.parametrize("layer_type", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize(("engine", "is_direct"), [("DEFAULT", False), ("CUDNN", False), ("CAFFE", True)])
def test_engine_caffe_asks_for_the_sums_themselves(layer_type, engine, is_direct):
    prototxt = f"type: '{layer_type}' convolution_param {{ num_output: 64 kernel_size: 3 engine: {engine} }}"
    made = Rig(prototxt, [np.zeros((4, 64, 20, 20))], dtype=np.float32, kernels=cpu).layer._plan
    plan = made if layer_type == "Convolution" else made._plan
    assert isinstance(plan, Training) is not is_direct
    if not is_direct:
        assert made.working_bytes() == plan.working_bytes()  # what a limit of memory counts


def test_blocks_are_alike_and_within_their_bytes():
    tiles = Tiling.of(spec_of(7, 40, 42, 41, 96))
    assert (tiles.n_rows, tiles.columns, tiles.n_tiles) == (77, 11, 847)
    row_bytes = 4 * 36 * 11 * 96
    assert [tiles.block_rows(n * row_bytes, 96) for n in (0, 1, 2, 26, 76, 77, 1000)] == [1, 1, 2, 26, 39, 77, 77]


@needs_onednn
@TAPS
def test_working_memory_is_what_the_passes_take(monkeypatch, taps):
    spec, taken = spec_of(4, 80, 18, 17, 160, 1, taps, group=2), {}
    x, w, b, gy = drawn(spec, np.random.default_rng(0))
    plan = Training(library(), spec)

    def noted(name, n_bytes):
        taken[name] = max(taken.get(name, 0), n_bytes)
        return arrays.workspace(name, n_bytes)

    for module in (of_winograd, weight_gradients):
        monkeypatch.setattr(module, "workspace", noted)
    plan.forward(x, w, b, np.empty_like(gy))
    plan.backward_data(gy, w, np.empty_like(x))
    plan.backward_weights(x, gy, np.empty_like(w), np.empty_like(b))
    assert plan.working_bytes() == taken
