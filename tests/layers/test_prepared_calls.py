"""Calls made ready once: they compute what ``forward`` does, on any number of threads, and say where they fail."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.jit import checks_bounds
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.cpu.onednn.winograd.plans import Inference as Winograd
from scaffe.layers.kernels.specs import ConvSpec

pytestmark = [pytest.mark.skipif(library() is None, reason="no oneDNN"),
              pytest.mark.skipif(checks_bounds(), reason="native code has nobody to raise to")]
SPECS = {  # images, inputs, outputs, kernel, stride, group
    "pixels in parts": (2, 24, 64, 1, 1, 1), "weights in parts": (1, 512, 512, 1, 1, 1),
    "a stride": (2, 32, 32, 1, 2, 1), "a channel each": (2, 32, 32, 3, 1, 32), "by oneDNN": (1, 6, 10, 3, 2, 2),
    "by Winograd": (2, 64, 64, 3, 1, 1), "its groups": (3, 96, 128, 3, 1, 2), "its five taps": (2, 48, 56, 5, 1, 1),
}


@pytest.fixture(params=[1, 2, 3])
def n_threads(request):
    cpu.set_threads(request.param)
    yield request.param
    cpu.set_threads(1)


def planned(case: str, adds: bool, slope: float | None = 0.25):
    """A plan with weights, and its arrays: the bottom, the top, and what is added."""
    n, inputs, outputs, kernel, stride, group = SPECS[case]
    spec = ConvSpec((n, inputs, 12, 10), outputs, (kernel,) * 2, (stride,) * 2, (kernel // 2,) * 2, (1, 1), group)
    plan, rng = cpu.inference_convolution(spec, slope, adds), np.random.default_rng(len(case))
    plan.set_weights(rng.standard_normal(spec.weight_shape, np.float32), rng.standard_normal(outputs, np.float32))
    x, y, added = (rng.standard_normal(int(np.prod(shape)), np.float32)
                   for shape in (spec.in_shape, spec.out_shape, spec.out_shape))
    return plan, x, y, added if adds else None


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("case", SPECS)
def test_they_compute_what_forward_does(case, adds, n_threads):
    plan, x, y, added = planned(case, adds)
    calls = plan.prepare_calls(x, y, added)
    for factor in (1, -2):
        x *= factor
        assert calls.run() == len(calls) and (len(calls) == 1 or isinstance(plan, Winograd))
        expected = np.empty_like(y)
        plan.forward(x, expected, added)
        np.testing.assert_array_equal(y, expected)
    if adds:
        plan.prepare_calls(x, added, added).run()
        np.testing.assert_allclose(added, y, rtol=1e-5, atol=1e-5 * float(np.abs(y).max()))


def test_some_in_a_row_keep_their_arrays(n_threads):
    def chain():
        """Of the first's arrays, and what it keeps, nobody else knows."""
        first, *arrays = planned("pixels in parts", False)
        second, x, z, added = planned("pixels in parts", True)
        return first.prepare_calls(*arrays) + second.prepare_calls(x, z, added), z, second.forward, x, added

    calls, z, forward, x, added = chain()
    gc.collect()
    assert calls.run() == len(calls) == 2
    expected = np.empty_like(z)
    forward(x, expected, added)
    np.testing.assert_array_equal(z, expected)


def test_they_suit_the_thread_and_the_threads_that_they_were_made_for():
    cpu.set_threads(1)
    plan, x, y, _ = planned("pixels in parts", False)
    calls, seen = plan.prepare_calls(x, y), []
    thread = threading.Thread(target=lambda: seen.append(calls.is_valid()))
    thread.start()
    thread.join()
    assert calls.is_valid()
    assert seen == [False]
    cpu.set_threads(2)
    try:
        assert not calls.is_valid()
    finally:
        cpu.set_threads(1)
    assert calls.is_valid()


def test_an_array_that_is_too_short_is_refused():
    for case in ("by oneDNN", "pixels in parts"):
        plan, x, y, _ = planned(case, False)
        with pytest.raises(LayerError, match="elements"):
            plan.prepare_calls(x[:-1], y)


def test_a_call_that_fails_ends_the_row():
    plan, x, y, _ = planned("by oneDNN", False)
    calls = plan.prepare_calls(x, y)
    rows, keeps = calls._rows, calls._keeps
    broken = type(calls)([rows[0], (rows[0][0], 0, *rows[0][2:]), rows[0]], keeps)  # no primitive
    assert broken.run() == 1
    with pytest.raises(LayerError, match="primitive_execute"):
        broken.raise_error()
