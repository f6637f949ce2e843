"""Kernel plans in float32, oneDNN's and the portable ones, against naive references: awkward geometry, all passes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.channels import add_bias, add_gradients
from scaffe.layers.kernels.cpu.conv.portable import Convolution, Deconvolution
from scaffe.layers.kernels.cpu.inner_product_plan import InnerProduct
from scaffe.layers.kernels.cpu.onednn.library import STATUS, library, reason
from scaffe.layers.kernels.cpu.portable_pooling import Pooling
from scaffe.layers.kernels.cpu.threads.parts import in_parts, set_parts
from scaffe.layers.kernels.specs import ConvSpec, LrnSpec, PoolSpec
from tests.reference import common as reference
from tests.reference.kernels import lrn

REAL = np.float32
ONE, NONE = (1, 1), (0, 0)
CONVOLUTIONS = [  # in_shape, n_output, kernel, stride, pad, dilation, group
    ((2, 3, 5, 6), 17, (3, 3), ONE, (1, 1), ONE, 1),
    ((1, 1, 3, 2), 4, (5, 5), ONE, (2, 2), ONE, 1),  # kernel larger than the image
    ((2, 17, 4, 3), 3, (1, 1), (2, 2), NONE, ONE, 1),
    ((1, 6, 7, 7), 4, (3, 2), (2, 1), (1, 0), ONE, 2),
    ((1, 4, 7, 6), 8, (2, 3), ONE, (2, 1), (3, 2), 4),  # a group a channel, dilated
    ((2, 3, 9, 9), 5, (4, 4), (3, 3), NONE, ONE, 1),  # the last columns are never read
]
POOLINGS = [  # in_shape, kernel, stride, pad, ceil
    ((2, 3, 6, 5), (2, 2), (2, 2), NONE, True),
    ((1, 17, 7, 7), (3, 3), (2, 2), NONE, True),
    ((2, 1, 6, 6), (3, 3), (2, 2), NONE, True),  # the last window hangs over
    ((1, 3, 3, 3), (2, 2), (2, 2), (1, 1), True),  # the last window would start in the padding
    ((1, 3, 6, 7), (3, 3), (2, 2), (1, 1), True),
    ((2, 2, 5, 4), (3, 2), (1, 3), (2, 1), False),
    ((1, 4, 4, 4), (4, 4), ONE, NONE, True),
]
needs_onednn = pytest.mark.skipif(library() is None, reason="oneDNN is not installed")


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Distinct multiples of 1/64: sums of products are exact enough for one tolerance."""
    n_elems = int(np.prod(shape))
    return ((np.random.default_rng(seed).permutation(n_elems) - n_elems // 2) / 64).astype(REAL).reshape(shape)


def stored(logical: np.ndarray) -> np.ndarray:
    """Channels last."""
    return np.ascontiguousarray(np.moveaxis(logical, 1, -1))


def logical(storage: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Caffe's order, float64."""
    return np.moveaxis(storage.reshape(shape[0], *shape[2:], shape[1]), -1, 1).astype(float)


def close(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal to float32's precision for the largest element."""
    scale = max(float(np.abs(expected).max()), 1.0)
    np.testing.assert_allclose(got, expected, rtol=0, atol=3e-6 * scale)


def plans(spec: ConvSpec) -> list:
    """The backend's choice and the portable plan."""
    return [cpu.convolution(spec), Convolution(spec)]


def conv_spec(case: tuple) -> ConvSpec:
    """With bias, float32."""
    return ConvSpec(*case, True, np.dtype(REAL))


def naive(spec: ConvSpec, x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """The reference of a spec."""
    return reference.convolution(x.astype(float), w.astype(float), b, spec.stride, spec.pad, spec.dilation, spec.group)


@needs_onednn
@pytest.mark.parametrize(("status", "error"), [("out of memory", MemoryError), ("runtime error", LayerError)])
def test_a_convolution_for_which_onednn_has_no_room_is_an_error_of_its_layer(monkeypatch, status, error) -> None:
    spec = conv_spec(CONVOLUTIONS[0])
    plan = cpu.convolution(spec)
    monkeypatch.setattr(library(), "execute", lambda *_: STATUS.index(status))
    x, w, b, y = (np.zeros(shape, REAL) for shape in (spec.in_shape, spec.weight_shape, spec.n_output, spec.out_shape))
    with pytest.raises(error, match=f"^dnnl_primitive_execute: {status}$"):
        plan.forward(stored(x), w, b, stored(y))


@needs_onednn
def test_onednn_takes_the_usual_cases() -> None:
    assert "onednn" in type(cpu.convolution(conv_spec(CONVOLUTIONS[0]))).__module__
    assert "onednn" in type(cpu.pooling(PoolSpec(*POOLINGS[0][:1], "MAX", *POOLINGS[0][1:]))).__module__
    assert "onednn" in type(cpu.inner_product(5, 5, 6)).__module__
    assert "onednn" not in type(cpu.inner_product(4, 5, 6, dtype=np.float64)).__module__


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("which", [0, 1], ids=["chosen", "portable"])
def test_convolution_forward(case: tuple, which: int) -> None:
    spec = conv_spec(case)
    plan, b = plans(spec)[which], numbers((spec.n_output,), 2)
    for seed in (0, 10):  # other arrays on the same plan
        x, w = numbers(spec.in_shape, seed), numbers(spec.weight_shape, seed + 1)
        expected, y = naive(spec, x, w, b), np.full(spec.out_shape, np.nan, REAL)
        plan.forward(stored(x), w, b, y)
        close(logical(y, spec.out_shape), expected)
        for slope in (0.0, 0.25):
            plan.forward(stored(x), w, b, y, slope)
            close(logical(y, spec.out_shape), np.where(expected > 0, expected, slope * expected))


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("which", [0, 1], ids=["chosen", "portable"])
def test_convolution_backward_by_the_data(case: tuple, which: int) -> None:
    """Convolution is linear in x: its gradient by element i is <gy, conv(unit i)>."""
    spec = conv_spec(case)
    plan, w, gy = plans(spec)[which], numbers(spec.weight_shape, 1), numbers(spec.out_shape, 3)
    gx = np.full(spec.in_shape, np.nan, REAL)
    plan.backward_data(stored(gy), w, gx)
    got = logical(gx, spec.in_shape)
    for i in np.random.default_rng(0).choice(got.size, min(got.size, 12), replace=False):
        unit = np.zeros(got.size)
        unit[i] = 1
        expected = float((gy * naive(spec, unit.reshape(spec.in_shape), w, None)).sum())
        assert got.flat[i] == pytest.approx(expected, abs=1e-5 * max(float(np.abs(got).max()), 1))


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("which", [0, 1], ids=["chosen", "portable"])
def test_convolution_backward_by_the_weights(case: tuple, which: int) -> None:
    """Written when asked to overwrite, added otherwise; linear in w as above."""
    spec = conv_spec(case)
    plan, x, gy = plans(spec)[which], numbers(spec.in_shape, 0), numbers(spec.out_shape, 3)
    gw, gb = np.full(spec.weight_shape, np.nan, REAL), np.full(spec.n_output, np.nan, REAL)
    plan.backward_weights(stored(x), stored(gy), gw, gb, True)
    first = gw.copy()
    close(gb, gy.astype(float).sum((0, 2, 3)))
    for i in np.random.default_rng(0).choice(gw.size, min(gw.size, 12), replace=False):
        unit = np.zeros(gw.size)
        unit[i] = 1
        expected = float((gy * naive(spec, x, unit.reshape(gw.shape), None)).sum())
        assert gw.flat[i] == pytest.approx(expected, abs=1e-5 * max(float(np.abs(gw).max()), 1))
    plan.backward_weights(stored(x), stored(gy), gw, gb)
    close(gw, 2 * first.astype(float))
    close(gb, 2 * gy.astype(float).sum((0, 2, 3)))


@pytest.mark.parametrize("portable", [False, True])
def test_deconvolution_is_the_convolution_backwards(portable: bool) -> None:
    spec = ConvSpec((2, 4, 7, 5), 6, (3, 2), (2, 1), (1, 0), ONE, 2, False)
    plan = Deconvolution(Convolution(spec), add_bias, add_gradients) if portable else cpu.deconvolution(spec)
    x, w, b = numbers(spec.out_shape, 0), numbers(spec.weight_shape, 1), numbers((4,), 2)
    y = np.full(spec.in_shape, np.nan, REAL)
    plan.forward(stored(x), w, b, y)
    expected = reference.deconvolution(x.astype(float), w.astype(float), b, spec.stride, spec.pad, ONE, 2)
    close(logical(y, spec.in_shape), expected)


@pytest.mark.parametrize("case", POOLINGS)
@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("portable", [False, True])
def test_pooling(case: tuple, method: str, portable: bool) -> None:
    shape, kernel, stride, pad, up = case
    spec = PoolSpec(shape, method, kernel, stride, pad, up)
    plan = Pooling(spec) if portable else cpu.pooling(spec)
    for seed in (0, 1):
        x = numbers(shape, seed)
        expected, places = reference.pooling(x.astype(float), method, kernel, stride, pad, up)
        assert spec.out_shape == expected.shape
        y, gy = np.full(spec.out_shape, np.nan, REAL), numbers(spec.out_shape, 5)
        plan.forward(stored(x), y)
        close(logical(y, spec.out_shape), expected)
        gx = np.full(shape, np.nan, REAL)
        plan.backward(stored(gy), gx)
        close(logical(gx, shape), _pooling_gradient(spec, gy, places))


def _pooling_gradient(spec: PoolSpec, gy: np.ndarray, places: np.ndarray) -> np.ndarray:
    """To the place of the maximum; or, AVE being linear, by units."""
    gradient = np.zeros(spec.in_shape)
    if spec.method == "MAX":
        for n, c, i, j in np.ndindex(gy.shape):
            gradient[n, c].flat[int(places[n, c, i, j])] += gy[n, c, i, j]
        return gradient
    for h, w in np.ndindex(spec.in_shape[2:]):
        unit = np.zeros((1, 1, *spec.in_shape[2:]))
        unit[0, 0, h, w] = 1
        share, _ = reference.pooling(unit, "AVE", spec.kernel, spec.stride, spec.pad, spec.ceil)
        gradient[:, :, h, w] = (gy * share).sum((2, 3))
    return gradient


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 17, 5), (16, 7, 130), (5, 64, 33)])
@pytest.mark.parametrize("portable", [False, True])
def test_inner_product(m: int, n: int, k: int, transpose: bool, portable: bool) -> None:
    plan = InnerProduct(m, n, k, transpose) if portable else cpu.inner_product(m, n, k, transpose)
    x, w, b, gy = numbers((m, k), 0), numbers((n, k), 1), numbers((n,), 2), numbers((m, n), 3)
    held = np.ascontiguousarray(w.T) if transpose else w
    y, gx, gw, gb = (np.full(s, np.nan, REAL) for s in ((m, n), (m, k), held.shape, (n,)))
    expected = reference.inner_product(x, w, b, 1)
    plan.forward(x, held, b, y)
    close(y, expected)
    plan.forward(x, held, b, y, 0.5)
    close(y, np.where(expected > 0, expected, 0.5 * expected))
    plan.backward_data(gy, held, gx)
    close(gx, reference.inner_product(gy, w.T, None, 1))
    plan.backward_weights(x, gy, gw, gb, True)
    wanted = reference.inner_product(gy.T, x.T, None, 1)
    close(gw.T if transpose else gw, wanted)
    plan.backward_weights(x, gy, gw, gb)
    close(gw.T if transpose else gw, 2 * wanted)
    close(gb, 2 * gy.astype(float).sum(0))


@needs_onednn
def test_same_arrays_give_the_same_bits() -> None:
    spec = ConvSpec((4, 16, 20, 20), 32, (5, 5), ONE, (2, 2), ONE)
    x, gy = stored(numbers(spec.in_shape, 0)), stored(numbers(spec.out_shape, 3))
    results = []
    for plan in (cpu.convolution(spec), cpu.convolution(spec)):
        gw, gb = np.empty(spec.weight_shape, REAL), np.empty(spec.n_output, REAL)
        plan.backward_weights(x, gy, gw, gb, True)
        results.append((gw, gb))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


@pytest.mark.parametrize("path", ["", "/nowhere/libdnnl.so.3"])
def test_without_onednn_the_portable_kernels_run_and_one_line_says_so(path: str, monkeypatch, capfd) -> None:
    monkeypatch.setenv("SCAFFE_ONEDNN", path)
    library.cache_clear()
    try:
        assert isinstance(cpu.convolution(conv_spec(CONVOLUTIONS[0])), Convolution)
        assert isinstance(cpu.inner_product(5, 3, 4), InnerProduct)
        assert "portable" in reason()
        assert "\n" not in reason()
        warned = capfd.readouterr().err
        assert warned.count("\n") == bool(path) and bool(path) == (f"SCAFFE_ONEDNN={path}: no libdnnl.so.3" in warned)
    finally:
        monkeypatch.undo()
        library.cache_clear()
        library()


@pytest.mark.parametrize("n_elems", [0, 1, 1 << 17, 300_001])
def test_parts_cover_every_element_once(n_elems: int) -> None:
    set_parts(3)
    try:
        x, y = np.arange(n_elems, dtype=REAL), np.zeros(n_elems, REAL)
        in_parts(lambda a, b, step: np.add(b, a + step, out=b), (x, y), REAL(2))
        np.testing.assert_array_equal(y, x + 2)
    finally:
        set_parts(1)


@pytest.mark.parametrize("within", [False, True])
def test_lrn_by_a_window_far_wider_than_the_image(within: bool) -> None:
    spec = LrnSpec((2, 3, 4, 5), 10**7 + 1, 1e14 if within else 1e7, 0.75, 1.0, within, np.dtype(np.float64))
    x, gy = (numbers(spec.in_shape, seed).astype(np.float64) for seed in (0, 1))
    y, gx = np.empty_like(stored(x)), np.empty_like(stored(x))
    plan = cpu.lrn(spec)
    plan.forward(stored(x), y)
    plan.backward(stored(x), y, stored(gy), gx)
    for got, wanted in zip((y, gx), lrn(x, gy, spec.local_size, spec.alpha, 0.75, 1.0, within), strict=True):
        np.testing.assert_allclose(got, stored(wanted), rtol=1e-9, atol=1e-12)


def test_lrn_is_the_same_on_any_number_of_threads() -> None:
    spec = LrnSpec((2, 7, 150, 150), 5, 1.5, 0.75, 1.0)
    x, gy = stored(numbers(spec.in_shape, 0)), stored(numbers(spec.in_shape, 1))
    results = []
    for n_threads in (1, 2, 3):
        set_parts(n_threads)
        plan, y, gx = cpu.lrn(spec), np.empty_like(x), np.empty_like(x)
        plan.forward(x, y)
        plan.backward(x, y, gy, gx)
        results.append((y, gx))
    set_parts(1)
    for y, gx in results[1:]:
        np.testing.assert_array_equal(y, results[0][0])
        np.testing.assert_array_equal(gx, results[0][1])


@pytest.mark.parametrize("types", [("bfloat16", "float32"), ("float32", "bfloat16")])
@pytest.mark.parametrize("n", [3, 1 << 21])
def test_a_part_of_another_type_is_converted_on_its_way(types: tuple[str, str], n: int) -> None:
    half = pytest.importorskip("ml_dtypes").bfloat16
    target, source = (np.full((n, 3), 7, half if name == "bfloat16" else np.float32) for name in types)
    source[...] = np.array([1 / 3, 2.5, -4]).astype(np.float32)
    cpu.copy_part(target[:, ::2], source[:, 1:])
    assert (target.astype(np.float32) == np.array([2.5, 7, -4])).all()


ELSEWHERE = """
import threading
import numpy as np
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.specs import ConvSpec
spec = ConvSpec((2, 1, 12, 12), 64, (1, 1), (1, 1), (2, 2), (1, 1))
plan, x = cpu.inference_convolution(spec, None, False), np.arange(288, dtype=np.float32)
w, b = np.arange(64, dtype=np.float32), np.ones(64, np.float32)
plan.set_weights(w.reshape(64, 1, 1, 1), b)
y = np.zeros((2, 16, 16, 64), np.float32)
thread = threading.Thread(target=plan.forward, args=(x, y))
thread.start()
thread.join()
wanted = np.ones_like(y)
wanted[:, 2:14, 2:14] += x.reshape(2, 12, 12, 1) * w
print((y == wanted).all())
"""


def test_a_plan_runs_on_another_thread_than_made_it() -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
