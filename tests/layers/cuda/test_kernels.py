"""GPU kernels for poolings, LRN, softmax, channels, elements: naive references, all types, ragged shapes, options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda import launch, pooling_lrn
from scaffe.layers.kernels.cuda.elementwise import add_scaled, convert
from scaffe.layers.kernels.cuda.updates import check_finite, sum_of_squares
from scaffe.layers.kernels.extents import n_words
from scaffe.layers.kernels.specs import LossSpec, LrnSpec, PoolSpec
from tests.layers.cuda.rig import DTYPES, close, double, every_dtype, numbers, shifted, stored, wide
from tests.reference import kernels as reference

POOLINGS = [  # in_shape, kernel, stride, pad, ceil
    ((2, 8, 6, 5), (2, 2), (2, 2), (0, 0), True),
    ((1, 17, 7, 7), (3, 3), (2, 2), (0, 0), True),
    ((1, 3, 3, 3), (2, 2), (2, 2), (1, 1), True),  # the last window would start in the padding
    ((1, 40, 6, 7), (3, 3), (2, 2), (1, 1), True),
    ((2, 2, 5, 4), (3, 2), (1, 3), (2, 1), False),
    ((1, 4, 17, 18), (17, 18), (1, 1), (0, 0), True),  # more places than a byte tells apart
    ((1, 1, 2, 2), (1, 1), (1, 1), (0, 0), True),
]


@every_dtype
@pytest.mark.parametrize("case", POOLINGS)
def test_pooling(cp: Any, case: tuple, dtype: np.dtype) -> None:
    shape, kernel, stride, pad, up = case
    x = numbers(shape, dtype, 0)
    for method in ("MAX", "AVE"):
        spec = PoolSpec(shape, method, kernel, stride, pad, up, dtype)
        plan, gy = cuda.pooling(spec, True), numbers(spec.out_shape, dtype, 1)
        y, places, gx = reference.pooling(x, gy, method, kernel, stride, pad)
        out, back = cp.empty(stored(y).shape, dtype), cp.empty(stored(x).shape, dtype)
        mask = cp.empty(out.shape, dtype)
        plan.forward(cp.asarray(stored(x)), out, mask if method == "MAX" else None)
        close(out, stored(y), dtype)
        plan.backward(cp.asarray(stored(gy)), back)
        close(back, stored(gx), dtype)
        if method == "MAX":
            close(mask, stored(places), dtype)


@every_dtype
@pytest.mark.parametrize("case", [*POOLINGS, ((1, 9, 16, 16), (16, 16), (1, 1), (0, 0), True)])  # 256 places
def test_maximum_with_relus_backward(cp: Any, case: tuple, dtype: np.dtype) -> None:
    """Windows without an element above 0 give no gradient; outputs and mask are what they are otherwise."""
    shape, kernel, stride, pad, up = case
    x = np.maximum(numbers(shape, dtype, 0, -3, 1).astype(np.float64), 0).astype(dtype)
    spec = PoolSpec(shape, "MAX", kernel, stride, pad, up, dtype)
    gy = numbers(spec.out_shape, dtype, 1)
    y, places, _ = reference.pooling(x, gy, "MAX", kernel, stride, pad)
    passed = np.where(y > 0, gy.astype(np.float64), 0).astype(dtype)
    _, _, gx = reference.pooling(x, passed, "MAX", kernel, stride, pad)
    plan, out, back = cuda.pooling(spec, True), cp.empty(stored(y).shape, dtype), cp.empty(stored(x).shape, dtype)
    mask = cp.empty(out.shape, dtype)
    plan.include_relu()
    plan.forward(cp.asarray(stored(x)), out, mask)
    plan.backward(cp.asarray(stored(gy)), back)
    close(out, stored(y), dtype)
    close(mask, stored(places), dtype)
    close(back, stored(gx), dtype)


@every_dtype
@pytest.mark.parametrize("case", POOLINGS)
def test_average_with_relus_backward(cp: Any, case: tuple, dtype: np.dtype) -> None:
    shape, kernel, stride, pad, up = case
    x, spec = numbers(shape, dtype, 0), PoolSpec(shape, "AVE", kernel, stride, pad, up, dtype)
    x[0, 0, 0, 0] = 0  # a kink is not above 0
    gy = numbers(spec.out_shape, dtype, 1)
    _, _, gx = reference.pooling(x, gy, "AVE", kernel, stride, pad)
    back = cp.empty(stored(x).shape, dtype)
    cuda.pooling(spec).backward_average(cp.asarray(stored(gy)), back, cp.asarray(stored(x)))
    close(back, stored(np.where(double(x) > 0, gx, 0)), dtype)


def test_pooling_reads_arrays_that_lie_anywhere(cp: Any) -> None:
    spec = PoolSpec((1, 8, 4, 4), "MAX", (2, 2), (2, 2), (0, 0))
    x, gy = numbers(spec.in_shape, spec.dtype, 0), numbers(spec.out_shape, spec.dtype, 1)
    y, _, gx = reference.pooling(x, gy, "MAX", (2, 2), (2, 2), (0, 0))
    plan, out, back = cuda.pooling(spec), cp.empty(stored(y).shape, np.float32), cp.empty(stored(x).shape, np.float32)
    plan.forward(shifted(cp, stored(x), 1), out)
    plan.backward(shifted(cp, stored(gy), 3), back)
    close(out, stored(y), spec.dtype)
    close(back, stored(gx), spec.dtype)


@every_dtype
def test_stochastic_pooling(cp: Any, dtype: np.dtype) -> None:
    """An element is taken where the running sum reaches its draw; without draws the mean weighted by the elements."""
    spec = PoolSpec((2, 5, 5, 4), "STOCHASTIC", (2, 3), (2, 2), (0, 1), True, dtype)
    x = numbers(spec.in_shape, dtype, 0, 0.1, 1)
    draws = np.random.default_rng(1).uniform(0, 1, spec.out_shape).astype(np.float32)
    y, mean, gx = np.zeros(spec.out_shape), np.zeros(spec.out_shape), np.zeros(spec.in_shape)
    gy = numbers(spec.out_shape, dtype, 2)
    for n, c, i, j in np.ndindex(spec.out_shape):
        rows, columns = range(2 * i, min(2 * i + 2, 5)), range(max(2 * j - 1, 0), min(2 * j + 2, 4))
        window = [(h, w) for h in rows for w in columns]
        values = np.array([double(x[n, c, h, w]) for h, w in window])
        h, w = window[int(np.argmax(np.cumsum(values) >= draws[n, c, i, j] * values.sum()))]
        y[n, c, i, j], mean[n, c, i, j] = x[n, c, h, w], np.square(values).sum() / values.sum()
        gx[n, c, h, w] += gy[n, c, i, j]
    plan, out, back = cuda.pooling(spec), cp.empty(stored(y).shape, dtype), cp.empty(stored(x).shape, dtype)
    plan.forward_stochastic(cp.asarray(stored(x)), out, cp.asarray(stored(draws).ravel()))
    close(out, stored(y), dtype)
    plan.backward(cp.asarray(stored(gy)), back)
    close(back, stored(gx), dtype)
    plan.forward_stochastic(cp.asarray(stored(x)), out, None)
    close(out, stored(mean), dtype)


@every_dtype
@pytest.mark.parametrize("case", [((2, 16, 2, 2), 5, 1.5, 0.75, 1.0), ((1, 7, 3, 2), 3, 2.0, 0.6, 2.0),
                                  ((1, 3, 2, 2), 11, 1.0, 0.75, 1.0), ((1, 40, 1, 2), 5, 1.5, 0.75, 1.0)])
@pytest.mark.parametrize("within", [False, True])
def test_lrn(cp: Any, case: tuple, within: bool, dtype: np.dtype) -> None:
    spec = LrnSpec(*case, within, dtype)
    x, gy = numbers(spec.in_shape, dtype, 0, -2, 2), numbers(spec.in_shape, dtype, 1)
    y, gx = reference.lrn(x, gy, spec.local_size, spec.alpha, spec.beta, spec.k, within)
    plan, out, back = cuda.lrn(spec), cp.empty(stored(y).shape, dtype), cp.empty(stored(x).shape, dtype)
    on_x = cp.asarray(stored(x))
    plan.forward(on_x, out)
    close(out, stored(y), dtype)
    plan.backward(on_x, out, cp.asarray(stored(gy)), back)
    close(back, stored(gx), dtype, 8)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize(("n_images", "most", "at_once"), [(19, 11, 8), (19, 19, 19), (16, 8, 8), (21, 3, 3),
                                                           (5, 0, 1)])
def test_lrn_backward_some_images_at_a_time(cp: Any, monkeypatch: Any, within: bool, n_images: int, most: int,
                                            at_once: int) -> None:
    spec = LrnSpec((n_images, 5, 2, 3), 3, 1.5, 0.75, 1.0, within, np.dtype(np.float64))
    monkeypatch.setattr(pooling_lrn, "SMALL_BYTES", most * 30 * 8 + 7)
    assert pooling_lrn.lrn_images(spec.in_shape, spec.dtype) == at_once
    x, gy = numbers(spec.in_shape, spec.dtype, 0, -2, 2), numbers(spec.in_shape, spec.dtype, 1)
    y, gx = reference.lrn(x, gy, spec.local_size, spec.alpha, spec.beta, spec.k, within)
    back = cp.empty(stored(x).shape, spec.dtype)
    cuda.lrn(spec).backward(*(cp.asarray(stored(a)) for a in (x, y, gy)), back)
    close(back, stored(gx), spec.dtype, 8)


def softmax(x: np.ndarray) -> np.ndarray:
    """Of rows, in float64."""
    powers = np.exp(double(x) - double(x).max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@every_dtype
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (19, 21), (2, 1000), (3, 2100)])
def test_softmax(cp: Any, shape: tuple, dtype: np.dtype) -> None:
    x, gy = numbers(shape, dtype, 0, -9, 9), numbers(shape, dtype, 1)
    y = softmax(x)
    out = cp.asarray(x)
    cuda.softmax_rows(out, out)
    close(out, y, dtype)
    held = double(out.get())
    back = cp.asarray(gy)
    cuda.softmax_rows_back(out, back, back)
    close(back, held * (double(gy) - (held * double(gy)).sum(1, keepdims=True)), dtype, 8)


@every_dtype
@pytest.mark.parametrize("divisor", [None, 7.0])
@pytest.mark.parametrize("ignored", [None, 2])
@pytest.mark.parametrize("shape", [(11, 5), (3, 2100)])
def test_softmax_loss(cp: Any, shape: tuple, ignored: int | None, divisor: float | None, dtype: np.dtype) -> None:
    x, labels = numbers(shape, dtype, 0, -4, 4), np.arange(shape[0]) % 4
    plan = cuda.softmax_loss(LossSpec(*shape, ignored, divisor, dtype))
    prob, loss, gx = cp.empty(shape, dtype), cp.empty(1, wide(dtype)), cp.empty(shape, dtype)
    on_labels = cp.asarray(labels.astype(np.float32))
    plan.forward(cp.asarray(x), on_labels, prob, loss)
    held, counts = double(prob.get()), labels != (-1 if ignored is None else ignored)
    true = softmax(x)[np.arange(shape[0]), labels]
    by = divisor or counts.sum()
    close(prob, softmax(x), dtype)
    expected = -np.log(true)[counts].sum() / by
    assert float(loss[0]) == pytest.approx(expected, rel=1e-5)
    plan.backward(prob, on_labels, cp.full(1, 3, wide(dtype)), gx)
    gradient = held.copy()
    gradient[np.arange(shape[0]), labels] -= 1
    close(gx, gradient * counts[:, None] * 3 / by, dtype)
    plan.check()


@every_dtype
def test_a_loss_is_of_the_scores_since_half_types_round_small_probabilities_to_0(cp: Any, dtype: np.dtype) -> None:
    x = cp.asarray(np.array([[0, -30, 5], [0, 0, 200], [0, np.nan, 0]], dtype))
    for row, label, expected in ((0, 1, 35 + np.log1p(np.exp(-5) + np.exp(-35))), (1, 0, -np.log(1.1754944e-38)),
                                 (2, 0, np.nan)):
        loss = cp.empty(1, wide(dtype))
        scores = x[row:row + 1]
        cuda.softmax_loss(LossSpec(1, 3, None, None, dtype)).forward(scores, cp.full(1, label, np.float32),
                                                                     cp.empty_like(scores), loss)
        assert float(loss[0]) == pytest.approx(expected, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize(("label", "said"), [(5, "label 5 is not one of the 5 classes"), (-1, "below 0")])
def test_a_wrong_label_makes_the_loss_no_number_and_is_named(cp: Any, label: int, said: str) -> None:
    plan = cuda.softmax_loss(LossSpec(3, 5))
    x, loss = cp.zeros((3, 5), np.float32), cp.empty(1, np.float32)
    plan.forward(x, cp.asarray(np.array([0, label, 4], np.float32)), cp.empty_like(x), loss)
    assert np.isnan(float(loss[0]))
    with pytest.raises(LayerError, match=said):
        plan.check()
    plan.forward(x, cp.zeros(3, np.float32), cp.empty_like(x), loss)
    plan.check()
    assert float(loss[0]) == pytest.approx(np.log(5), rel=1e-6)


@every_dtype
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (300, 8), (5, 600), (64, 40)])
def test_channels(cp: Any, shape: tuple, dtype: np.dtype) -> None:
    real = wide(dtype)
    x, gy = numbers(shape, dtype, 0, 2, 4), numbers(shape, dtype, 1)
    scale, bias = numbers(shape[1], real, 2), numbers(shape[1], real, 3)
    on_x, on_gy, on_scale, on_bias = map(cp.asarray, (x, gy, scale, bias))
    mean, variance = cuda.moments(on_x)
    close(mean, double(x).mean(0), real, 8)
    close(variance, double(x).var(0), real, 40)
    products, sums = cuda.scale_sums(on_x, on_gy)
    close(products, (double(x) * double(gy)).sum(0), real, 100)
    close(sums, double(gy).sum(0), real, 100)
    y = cp.empty(shape, dtype)
    cuda.scale_rows(on_x, on_scale, on_bias, y)
    close(y, double(x) * scale + bias, dtype)
    value, kept = cp.asarray(x), cp.empty(shape, dtype)
    cuda.scale_rows(value, on_scale, on_bias, value, kept, 0.25)
    np.testing.assert_array_equal(double(kept.get()), double(x))
    affine = double(x) * scale + bias
    close(value, np.where(affine > 0, affine, 0.25 * affine), dtype)


@every_dtype
@pytest.mark.parametrize("n_elems", [0, 1, 7, 1000, 1027, 8200])
def test_elements(cp: Any, n_elems: int, dtype: np.dtype) -> None:
    x, gy = numbers(n_elems, dtype, 0), numbers(n_elems, dtype, 1)
    mask = np.random.default_rng(2).integers(0, 2, n_elems).astype(np.uint8)
    for slope in (0.0, 0.25, -0.5):
        for by in (0, 1):  # aligned for packs, and not
            y, gx = cp.empty(n_elems, dtype), cp.empty(n_elems, dtype)
            cuda.relu_forward(shifted(cp, x, by), y, slope)
            close(y, np.where(double(x) > 0, double(x), slope * double(x)), dtype)
            cuda.relu_backward(shifted(cp, x, by), cp.asarray(gy), gx, slope)
            close(gx, np.where(double(x) > 0, double(gy), slope * double(gy)), dtype)
            signs = cp.asarray(np.full(n_words(n_elems), 7, np.uint32))
            cuda.save_sign_mask(shifted(cp, x, by), signs)
            np.testing.assert_array_equal(signs.get(), reference.sign_words(double(x)))
            inplace, apart = cp.asarray(gy), cp.empty(n_elems, dtype)
            for gx, source in ((inplace, inplace), (apart, cp.asarray(gy))):
                cuda.relu_backward_mask(signs, source, gx, slope)
                close(gx, np.where(double(x) > 0, double(gy), slope * double(gy)), dtype)
            total = double(x) + double(gy)
            y = shifted(cp, x, by)
            cuda.add_relu(y, cp.asarray(gy), y, slope)
            close(y, np.where(total > 0, total, slope * total), dtype)
    others = [numbers(n_elems, dtype, seed) for seed in range(6)]
    for n in range(2, 7):  # two passes from five on
        y = shifted(cp, others[0], n % 2)
        cuda.add_up([y, *map(cp.asarray, others[1:n])], y)
        close(y, sum(map(double, others[:n])), dtype)
        y = shifted(cp, others[0], n % 2)
        cuda.add_up([y, *map(cp.asarray, others[1:n])], y, cp.asarray(x))
        close(y, np.where(double(x) > 0, sum(map(double, others[:n])), 0), dtype)
    y = cp.asarray(gy)
    cuda.mask_scale(cp.asarray(x), cp.asarray(mask), 1.5, y)
    close(y, np.where(mask, double(x) * 1.5, 0), dtype)
    y = cp.asarray(gy)
    add_scaled(cp.asarray(x), y, 2.0, 0.5)
    close(y, 2 * double(x) + 0.5 * double(gy), dtype)
    y = cp.empty(n_elems, dtype)
    add_scaled(cp.asarray(x), y, 2.0, 0.0)
    close(y, 2 * double(x), dtype)


@every_dtype
@pytest.mark.parametrize("source", DTYPES, ids=lambda d: d.name)
def test_conversions_round_to_nearest(cp: Any, source: np.dtype, dtype: np.dtype) -> None:
    x = numbers(1027, source, 0, -3, 3)
    y = cp.empty(x.size, dtype)
    convert(cp.asarray(x), y)
    middle = x.astype(np.float32) if dtype.itemsize == 2 else x  # halves are made from float32
    np.testing.assert_array_equal(double(y.get()), double(middle.astype(dtype)))


@every_dtype
@pytest.mark.parametrize("n_elems", [0, 1, 1000, 40_003])
def test_whole_arrays(cp: Any, n_elems: int, dtype: np.dtype) -> None:
    x = numbers(n_elems, dtype, 0)
    assert float(sum_of_squares(cp.asarray(x))[0]) == pytest.approx(np.square(double(x)).sum(), rel=1e-5)
    flag = cp.zeros(1, np.int32)
    check_finite(cp.asarray(x), flag)
    assert int(flag[0]) == 0
    for wrong in (np.inf, -np.inf, np.nan) if n_elems else ():
        x[n_elems // 2] = wrong
        flag = cp.zeros(1, np.int32)
        check_finite(cp.asarray(x), flag)
        assert int(flag[0]) == 1


def test_flat_kernels_have_a_block_for_what_its_threads_take_at_once(cp: Any, monkeypatch: Any) -> None:
    """256 threads with 16 bytes each, however many blocks fill the card."""
    grids: list[Any] = []
    monkeypatch.setattr(launch, "kernel", lambda *given: lambda grid, block, arguments: grids.append((grid, block)))
    n_elems = 256 * 4 * 5000 + 1
    add_scaled(cp.empty(n_elems, np.float32), cp.empty(n_elems, np.float32))
    assert grids == [((5001,), (256,))]
