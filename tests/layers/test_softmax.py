"""Softmax and its loss over rows: against formulas in float64, on several threads, with what scores may hold."""

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu import softmax
from scaffe.layers.kernels.specs import LossSpec

SHAPES = [(1, 1), (3, 1), (1, 2), (5, 3), (33, 4), (17, 21), (50, 1000), (7, 13)]


@pytest.fixture(autouse=True, params=[1, 2, 3])
def n_threads(request, monkeypatch):
    monkeypatch.setattr(softmax, "LEAST_POWERS", 1)
    monkeypatch.setattr(softmax, "LEAST_POWERS", 1)
    monkeypatch.setattr(softmax, "LEAST_ELEMS", 1)
    cpu.set_threads(request.param)
    yield request.param
    cpu.set_threads(1)


def probabilities(x):
    powers = np.exp((x - x.max(1, keepdims=True)).astype(np.float64))  # a difference is rounded as the scores are
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows(shape, dtype):
    x = 20 * np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)
    y = np.full_like(x, 7)
    cpu.softmax_rows(x, y)
    np.testing.assert_allclose(y, probabilities(x), rtol=1e-6 if dtype == np.float32 else 1e-13, atol=1e-44)
    cpu.softmax_rows(x, x)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("shape", [(19, 3), (19, 40)])
def test_rows_on_any_number_of_threads_have_the_same_bits(shape):
    x = np.random.default_rng(2).standard_normal(shape, np.float32)
    y, alone = np.zeros_like(x), np.zeros_like(x)
    cpu.softmax_rows(x, y)
    for r in range(len(x)):
        cpu.softmax_rows(x[r:r + 1], alone[r:r + 1])
    np.testing.assert_array_equal(y, alone)


@pytest.mark.parametrize("place", [0, 3, 6])
def test_numbers_that_are_none_fill_their_row_and_no_other(place):
    x = np.random.default_rng(4).standard_normal((5, 7), np.float32)
    expected = probabilities(x)
    for r, value in ((1, np.nan), (3, np.inf)):
        x[r, place], expected[r] = value, np.nan
    x[4, place] = -np.inf
    expected[4] = np.insert(probabilities(np.delete(x[4:], place, 1))[0], place, 0)
    y = np.zeros_like(x)
    cpu.softmax_rows(x, y)
    np.testing.assert_allclose(y, expected, rtol=3e-6)


@pytest.mark.parametrize("ignored", [None, 0])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_loss_and_its_gradient(shape, ignored):
    rng, (n, n_classes) = np.random.default_rng(sum(shape)), shape
    x, labels = 3 * rng.standard_normal(shape, np.float32), rng.integers(0, n_classes, n).astype(np.float32)
    plan = cpu.softmax_loss(LossSpec(n, n_classes, ignored, None, np.dtype(np.float32)))
    prob, loss, gx = np.zeros_like(x), np.zeros(1, np.float32), np.full_like(x, 7)
    plan.forward(x, labels, prob, loss)
    plan.backward(prob, labels, np.array([0.5], np.float32), gx)
    expected, counts = probabilities(x), np.ones(n, bool) if ignored is None else labels != ignored
    n_counted = max(counts.sum(), 1)
    losses = -np.log(np.take_along_axis(expected, labels.astype(int)[:, None], 1)[:, 0])
    assert loss[0] == pytest.approx(losses[counts].sum() / n_counted, rel=3e-6, abs=1e-7)
    np.testing.assert_allclose(prob, expected, rtol=3e-6)
    expected[np.arange(n), labels.astype(int)] -= 1
    np.testing.assert_allclose(gx, np.where(counts[:, None], expected * 0.5 / n_counted, 0), rtol=3e-5, atol=1e-7)


def test_a_hopeless_answer_costs_what_it_does_in_caffe():
    plan = cpu.softmax_loss(LossSpec(2, 2, None, 1, np.dtype(np.float32)))
    loss, prob = np.zeros(1, np.float32), np.zeros((2, 2), np.float32)
    plan.forward(np.array([[0, 1e4], [0, 0]], np.float32), np.array([0, 1], np.float32), prob, loss)
    assert loss[0] == pytest.approx(87.33655 + np.log(2), rel=1e-6)


@pytest.mark.parametrize(("label", "ignored"), [
    (3, None), (-1, None), (-1, 3), (np.nan, 3), (np.nan, None), (1e30, 255)])
def test_a_label_that_is_no_class_is_refused(label, ignored):
    plan = cpu.softmax_loss(LossSpec(70, 3, ignored, 1, np.dtype(np.float32)))
    labels = np.zeros(70, np.float32)
    labels[37] = label
    with pytest.raises(LayerError, match="label -?[0-9]+ is not one of the 3 classes"):
        plan.forward(np.zeros((70, 3), np.float32), labels, np.zeros((70, 3), np.float32), np.zeros(1, np.float32))
