"""GPU batch norm with the layers fused to it, by our kernels and by cuDNN: against naive references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda import channels
from scaffe.layers.kernels.cuda.cudnn import batch_norm as cudnn_batch_norm
from scaffe.layers.kernels.cuda.cudnn import plans as cudnn_plans
from scaffe.layers.kernels.plans import SigningPlan
from scaffe.layers.kernels.specs import Fused, FusedDiffs, NormSpec
from tests.layers.cuda.conftest import REAL
from tests.layers.cuda.rig import DTYPES, EPS, close, double, every_dtype, numbers, shifted, wide
from tests.reference import batch_norm as reference

BN_EPS, FRACTION = 2.0**-9, 0.75
SHAPES = [(2, 8, 3, 5), (5, 16), (3, 3, 4), (1, 8, 1, 1), (2, 5, 3, 2, 2), (40, 24)]
# What is fused: whether scale and bias are there, and ReLU's slope.
BEHIND = {"nothing": (False, False, None), "relu": (False, False, 0.0), "scale": (True, False, None),
          "both": (True, True, None), "both, relu": (True, True, 0.0), "bias, leaky": (False, True, 0.25)}


class Bench:
    """A plan with its arrays, on the device and in float64."""

    def __init__(self, cp: Any, shape: tuple[int, ...], dtype: np.dtype, what: str) -> None:
        self.cp, self.dtype, self.real = cp, dtype, wide(dtype)
        self.spec = NormSpec(shape, BN_EPS, FRACTION, dtype)
        self.plan = cuda.batch_norm(self.spec)
        rows, n = (self.spec.n_rows, self.spec.n_channels), self.spec.n_channels
        self.x, self.gy = numbers(rows, dtype, 0, -3, 5), numbers(rows, dtype, 1)
        has_scale, has_bias, self.slope = BEHIND[what]
        scale, bias = numbers(n, self.real, 2, 0.5, 2), numbers(n, self.real, 3)
        self.fused = Fused(cp.asarray(scale) if has_scale else None, cp.asarray(bias) if has_bias else None,
                             self.slope)
        self.factors = (double(scale) if has_scale else np.ones(n), double(bias) if has_bias else np.zeros(n),
                        1.0 if self.slope is None else self.slope)
        self.sums = [cp.ones(n, self.real), cp.full(n, 2, self.real), cp.full(1, 3, self.real)]

    def diffs(self, overwrite: bool) -> FusedDiffs:
        """Places that hold 1s."""
        n = self.spec.n_channels
        return FusedDiffs(self.cp.ones(n, self.real), self.cp.ones(n, self.real), overwrite)

    def check_back(self, gx: Any, diffs: FusedDiffs, expected: tuple[np.ndarray, ...], on_kink: bool = False) -> None:
        """Gradients to what their sizes leave of the type's digits. On ReLU's kink either side is right: there a number
        of ``gy``, of which a channel has one, may go through to the bias."""
        size = np.abs(double(self.gy)).max() / np.sqrt(BN_EPS) * np.abs(self.factors[0]).max()
        if gx is not None:
            np.testing.assert_allclose(double(gx.get()), expected[0], rtol=0, atol=8 * size * EPS[self.dtype.name])
        kept = 0 if diffs.overwrite else 1
        scale, bias = double(diffs.scale.get()), double(diffs.bias.get())
        if on_kink:
            passes = np.abs(bias - kept) > np.abs(double(self.gy)[0]) / 2
            bias = bias - np.where(passes, double(self.gy)[0], 0)
        for got, e in zip((scale, bias), expected[1:], strict=True):
            np.testing.assert_allclose(got, kept + e, rtol=0, atol=2e3 * EPS[self.real.name])


@every_dtype
@pytest.mark.parametrize("what", BEHIND)
@pytest.mark.parametrize("shape", SHAPES)
def test_all_passes(cp: Any, kind: str, shape: tuple, what: str, dtype: np.dtype) -> None:
    on = Bench(cp, shape, dtype, what)
    assert isinstance(on.plan, cudnn_batch_norm.BatchNorm) == (kind == "cudnn" and dtype != np.float64)
    x, gy, m = double(on.x), double(on.gy), on.spec.n_rows
    on_x, on_gy = cp.asarray(on.x), cp.asarray(on.gy)
    out, back = cp.empty(on.x.shape, dtype), cp.empty(on.x.shape, dtype)
    on.plan.forward_train(on_x, out, on.sums, on.fused)
    close(out, reference.forward(x, x.mean(0), x.var(0), BN_EPS, *on.factors), dtype, 40)
    sums = 0.75 + x.mean(0), 1.5 + x.var(0) * m / max(m - 1, 1), np.array([3.25])
    for got, expected in zip(on.sums, sums, strict=True):
        close(got, expected, on.real, 40)
    close_to_kink = np.abs(reference.forward(x, x.mean(0), x.var(0), BN_EPS, *on.factors[:2], 1.0)).min()
    assert on.slope is None or m == 1 or close_to_kink > 1e-5
    for overwrite in (True, False):
        diffs = on.diffs(overwrite)
        on.plan.backward(on_x, on_gy, back, on.fused, diffs)
        on.check_back(back, diffs, reference.backward(x, gy, BN_EPS, *on.factors), m == 1 and what == "relu")
    on.plan.normalized(on_x, out)
    close(out, (x - x.mean(0)) / np.sqrt(x.var(0) + BN_EPS), dtype, 40)


@every_dtype
@pytest.mark.parametrize("what", ["nothing", "both, relu", "bias, leaky"])
def test_by_running_sums(cp: Any, kind: str, what: str, dtype: np.dtype) -> None:
    on = Bench(cp, SHAPES[0], dtype, what)
    x, gy, (means, variances, factor) = double(on.x), double(on.gy), (double(s.get()) for s in on.sums)
    stats = means / factor, variances / factor
    on_x, on_gy = cp.asarray(on.x), cp.asarray(on.gy)
    out, back, diffs = cp.empty(on.x.shape, dtype), cp.empty(on.x.shape, dtype), on.diffs(True)
    on.plan.forward_fixed(on_x, out, on.sums, on.fused)
    close(out, reference.forward(x, *stats, BN_EPS, *on.factors), dtype, 20)
    on.plan.backward(on_x, on_gy, back, on.fused, diffs)
    on.check_back(back, diffs, reference.backward_fixed(x, gy, *stats, BN_EPS, *on.factors))
    on.sums[2][...] = 0  # Caffe: a factor of 0 makes both 0
    on.plan.forward_fixed(on_x, out, on.sums, on.fused)
    close(out, reference.forward(x, 0 * means, 0 * means, BN_EPS, *on.factors), dtype, 20)


@every_dtype
@pytest.mark.parametrize("what", ["scale", "both, relu", "bias, leaky"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sum_behind_it(cp: Any, kind: str, shape: tuple, what: str, dtype: np.dtype) -> None:
    on = Bench(cp, shape, dtype, what)
    x, other = double(on.x), numbers(on.x.shape, dtype, 5)
    slope = on.factors[2]
    for fixed in (False, True):
        if fixed:
            means, variances, factor = (double(s.get()) for s in on.sums)
            stats = means / factor, variances / factor
        else:
            stats = x.mean(0), x.var(0)
        total = reference.forward(x, *stats, BN_EPS, *on.factors[:2], 1.0) + double(other)
        out, forward = cp.empty(on.x.shape, dtype), on.plan.forward_fixed if fixed else on.plan.forward_train
        forward(cp.asarray(on.x), out, on.sums, replace(on.fused, addend=cp.asarray(other)))
        close(out, np.where(total > 0, total, slope * total), dtype, 40)


@every_dtype
def test_in_place_and_without_a_gradient_of_x(cp: Any, kind: str, dtype: np.dtype) -> None:
    on = Bench(cp, SHAPES[0], dtype, "both, relu")
    x, gy = double(on.x), double(on.gy)
    value, kept, gradient = cp.asarray(on.x), cp.empty(on.x.shape, dtype), cp.asarray(on.gy)
    on.plan.forward_train(value, value, on.sums, on.fused, kept)
    np.testing.assert_array_equal(double(kept.get()), x)
    close(value, reference.forward(x, x.mean(0), x.var(0), BN_EPS, *on.factors), dtype, 20)
    expected, diffs = reference.backward(x, gy, BN_EPS, *on.factors), on.diffs(True)
    on.plan.backward(kept, gradient, None, on.fused, diffs)
    on.check_back(None, diffs, expected)
    on.plan.backward(kept, gradient, gradient, on.fused)
    on.check_back(gradient, diffs, expected)


def test_arrays_may_lie_anywhere(cp: Any) -> None:
    on = Bench(cp, SHAPES[0], np.dtype(np.float32), "both, relu")
    plan, x, gy = channels.BatchNorm(on.spec), double(on.x), double(on.gy)
    out, back, diffs = (shifted(cp, np.zeros_like(on.x), 1) for _ in range(2)), None, on.diffs(True)
    out, back = out
    plan.forward_train(shifted(cp, on.x, 1), out, on.sums, on.fused)
    close(out, reference.forward(x, x.mean(0), x.var(0), BN_EPS, *on.factors), on.dtype, 20)
    plan.backward(shifted(cp, on.x, 1), shifted(cp, on.gy, 1), back, on.fused, diffs)
    on.check_back(back, diffs, reference.backward(x, gy, BN_EPS, *on.factors))


@pytest.mark.skipif(REAL, reason="looks into the pretend module")
def test_what_cudnn_runs_and_what_it_has_no_engine_for(cp: Any, kind: str) -> None:
    from tests.pretend.cudnn import pygraph

    if kind == "ours":
        return
    forward, backward = "batchnorm", "batchnorm_backward"
    with_relu = [f"{forward}+relu", f"batchnorm_inference+relu_backward+{backward}"]
    for dtype, shape, what, ran in (
            (DTYPES[0], (2, 12, 3, 5), "both", [forward, backward]),
            (DTYPES[0], (2, 12, 3, 5), "both, relu", with_relu),
            (DTYPES[2], (2, 8, 3, 5), "relu", with_relu), (DTYPES[3], (2, 8, 3, 5), "scale", [forward, backward]),
            (DTYPES[2], (2, 12, 3, 5), "both", []), (DTYPES[0], (2, 6, 3, 5), "both", []),
            (DTYPES[0], (2, 12, 3, 5), "bias, leaky", [])):
        on = Bench(cp, shape, dtype, what)
        on_x, on_gy, out = cp.asarray(on.x), cp.asarray(on.gy), cp.empty(on.x.shape, dtype)
        for _ in range(2):  # the first time plans are made and timed
            pygraph.log.clear()
            on.plan.forward_train(on_x, out, on.sums, on.fused)
            on.plan.backward(on_x, on_gy, out, on.fused)
        assert pygraph.log == ran, (dtype, shape, what)


@pytest.mark.skipif(REAL, reason="counts the pretend module's runs")
def test_plans_are_timed_once_and_remembered(cp: Any, kind: str, tmp_path: Any) -> None:
    from tests.pretend.cudnn import pygraph

    if kind == "ours":
        return
    for expected in (True, False):
        pygraph.log.clear()
        on = Bench(cp, (2, 12, 3, 5), DTYPES[0], "both, relu")
        on.plan.forward_train(cp.asarray(on.x), cp.empty(on.x.shape, DTYPES[0]), on.sums, on.fused)
        assert (len(pygraph.log) > 1) == expected
        cudnn_plans.build.cache_clear()  # as a new process would
    kept = [path.read_bytes() for path in (tmp_path / "cudnn_plans").iterdir()]
    assert any(b"batchnorm" in content for content in kept)


@every_dtype
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_sign_bits(cp: Any, kind: str, shape: tuple, adds: bool, dtype: np.dtype) -> None:
    """Of the result; a plan that writes none says so."""
    on = Bench(cp, shape, dtype, "both, relu")
    able = isinstance(on.plan, SigningPlan) and on.plan.can_write_signs(0.0, adds)
    assert not (kind == "ours" and able)
    n_bytes = -(-on.x.size // 8)
    addend, bits = cp.asarray(on.gy) if adds else None, cp.full(n_bytes, 255, np.uint8)
    y = cp.empty(on.x.shape, dtype)
    on.plan.forward_train(cp.asarray(on.x), y, on.sums, replace(on.fused, addend=addend, signs=bits if able else None))
    if able:
        assert on.plan.wrote_signs
        np.testing.assert_array_equal(bits.get(), np.packbits((double(y.get()) > 0).reshape(-1), bitorder="little"))
    x = cp.asarray(on.x)
    on.plan.forward_train(x, x, on.sums, replace(on.fused, signs=bits if able else None), cp.empty_like(x))
    assert not (able and on.plan.wrote_signs)
