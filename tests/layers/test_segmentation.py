"""BN, SegAccuracy, L1Loss and Interp's sizes by value, and a net of SegNet's and of PSPNet's form."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig, spread
from tests.reference import forks as sizes
from tests.reference import segmentation as reference

X = spread((3, 4, 2, 5), -2, 3)
SEGNET = 'type: "BN" bn_param { scale_filler { type: "uniform" min: 1 max: 2 } shift_filler { type: "uniform" } %s }'
PSPNET = 'type: "BN" bn_param { slope_filler { type: "uniform" min: 1 max: 2 } bias_filler { type: "uniform" } %s }'


def affine(rig: Rig) -> tuple[np.ndarray, np.ndarray]:
    scale, shift = (blob.data.ravel() for blob in rig.layer.blobs[:2])
    return scale, shift


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 2, 5), (5, 1, 1, 1), (7, 3)])
def test_segnets_bn_takes_the_batch_in_both_phases(phase: int, in_place: bool, shape: tuple[int, ...]) -> None:
    x = spread(shape, -2, 3)
    rig = Rig(SEGNET % "", [x], n_tops=3, phase=phase, in_place=in_place)
    assert [blob.shape for blob in rig.layer.blobs] == [(1, shape[1], 1, 1)] * 2
    y, mean, variance = rig.forward()
    expected = reference.moments(x)
    np.testing.assert_allclose(y, reference.bn(x, *affine(rig), *expected, 1e-9), atol=1e-9)
    np.testing.assert_allclose(mean.ravel(), expected[0], atol=1e-12)
    np.testing.assert_allclose(variance.ravel(), expected[1], atol=1e-12)


def test_segnets_bn_for_inference_only_scales_and_shifts() -> None:
    rig = Rig(SEGNET % "bn_mode: INFERENCE", [X], phase=1)
    np.testing.assert_allclose(rig.forward()[0], reference.bn(X, *affine(rig), np.zeros(4), np.ones(4), 0))


def test_pspnets_bn_averages_in_training_and_uses_the_averages_in_testing() -> None:
    train = Rig(PSPNET % "momentum: 0.75 eps: 0.01", [X])
    np.testing.assert_array_equal(train.layer.blobs[2].data_flat, np.zeros(4))
    mean, variance = np.zeros(4), np.zeros(4)
    for x in (X, 2 * X + 1, X[:, ::-1]):
        of_batch = reference.moments(x)
        np.testing.assert_allclose(train.feed(x)[0], reference.bn(x, *affine(train), *of_batch, 0.01))
        mean, variance = 0.75 * mean + 0.25 * of_batch[0], 0.75 * variance + 0.25 * of_batch[1]
    np.testing.assert_allclose(train.layer.blobs[2].data_flat, mean)
    np.testing.assert_allclose(train.layer.blobs[3].data_flat, variance)
    test = Rig(PSPNET % "momentum: 0.75 eps: 0.01", [X], phase=1)
    for mine, theirs in zip(test.layer.blobs, train.layer.blobs, strict=True):
        mine.data[...] = theirs.data
    np.testing.assert_allclose(test.forward()[0], reference.bn(X, *affine(test), mean, variance, 0.01))
    np.testing.assert_allclose(test.layer.blobs[2].data_flat, mean)


def test_a_frozen_bn_keeps_its_averages_and_does_not_learn() -> None:
    rig = Rig(PSPNET % "frozen: true eps: 0", [X])
    np.testing.assert_allclose(rig.forward()[0], reference.bn(X, *affine(rig), np.zeros(4), np.ones(4), 0))
    np.testing.assert_array_equal(rig.layer.blobs[3].data_flat, np.ones(4))
    assert [spec.lr_mult for spec in rig.layer.param.param] == [0, 0, 0, 0]
    bottoms, params = rig.backward([np.ones_like(X)])
    np.testing.assert_allclose(bottoms[0], np.broadcast_to(affine(rig)[0].reshape(1, 4, 1, 1), X.shape))
    assert not any(diff.any() for diff in params)


def test_only_the_averages_of_pspnets_bn_are_kept_from_learning() -> None:
    rig = Rig(PSPNET.replace('"BN"', '"BN" param { lr_mult: 3 }') % "", [X])
    assert [spec.lr_mult for spec in rig.layer.param.param] == [3, 1, 0, 0]


@pytest.mark.parametrize("reset", ["", "reset: false"])
def test_seg_accuracy(reset: str) -> None:
    rng = np.random.default_rng(2)
    rig = Rig(f'type: "SegAccuracy" seg_accuracy_param {{ ignore_label: 255 ignore_label: 9 {reset} }}',
              [np.zeros((2, 4, 3, 5)), np.zeros((2, 1, 3, 5))])
    counts = np.zeros((4, 4), int)
    for _ in range(3):
        scores = rng.integers(0, 3, (2, 4, 3, 5))  # with ties
        labels = rng.choice([0, 1, 3, 9, 255], (2, 1, 3, 5))
        if not reset:
            counts[...] = 0
        expected = reference.seg_accuracy(scores, labels, (255, 9), counts)
        np.testing.assert_allclose(rig.feed(scores, labels)[0].ravel(), expected)


@pytest.mark.parametrize(("options", "divisor"), [("", 24 - 5), ("normalize: false", 2), ("normalization: FULL", 24)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_segnets_softmax_loss_weighs_classes(options: str, divisor: int, dtype: type) -> None:
    weights, labels = np.array([0.5, 2, 0, 1.25]), np.arange(24).reshape(2, 1, 3, 4) % 5 - 1
    scores = spread((2, 4, 3, 4), -3, 3)
    text = ('type: "SoftmaxWithLoss" loss_param { weight_by_label_freqs: true ignore_label: -1 '
            f"class_weighting: [0.5, 2, 0, 1.25] {options} }}")
    rig = Rig(text, [scores, labels], dtype=dtype)
    loss, gradient = 0.0, np.zeros_like(scores)
    for n, _, i, j in np.argwhere(labels >= 0):
        label, e = labels[n, 0, i, j], np.exp(scores[n, :, i, j])
        loss -= weights[label] * np.log(e[label] / e.sum()) / divisor
        gradient[n, :, i, j] = weights[label] * (e / e.sum() - np.eye(4)[label]) / divisor
    np.testing.assert_allclose(rig.forward()[0], loss, rtol=1e-5)
    np.testing.assert_allclose(rig.backward([1.0], [True, False])[0][0], gradient, rtol=1e-4, atol=1e-7)


def test_l1_loss() -> None:
    a, b = spread((3, 4), seed=1), spread((3, 4), seed=2)
    b[1] = a[1]
    rig = Rig('type: "L1Loss"', [a, b])
    assert rig.forward()[0] == pytest.approx(sum(abs(x - y) for x, y in zip(a.ravel(), b.ravel(), strict=True)) / 3)
    bottoms, _ = rig.backward([2.0])
    np.testing.assert_allclose(bottoms[0], np.where(a > b, 2 / 3, np.where(a < b, -2 / 3, 0)))
    np.testing.assert_allclose(bottoms[1], -bottoms[0])


@pytest.mark.parametrize(("options", "size"), [
    ("height: 3 width: 4 zoom_factor: 2", (3, 9)), ("height: 3 width: 4 shrink_factor: 2", (1, 3)),
    ("height: 3 width: 4 zoom_factor: 2 shrink_factor: 2", (3, 4))])
def test_interp_takes_one_factor_before_a_size_and_a_size_before_both(options: str, size: tuple[int, int]) -> None:
    got = Rig(f'type: "Interp" interp_param {{ {options} }}', [X]).forward()[0]
    np.testing.assert_allclose(got, sizes.interp(X, *size), atol=1e-12)


@pytest.mark.parametrize(("text", "inputs", "said"), [
    (SEGNET % "momentum: 0.9", [X], "momentum, of PSPNet's"), (SEGNET % "", [np.zeros(3)], "takes"),
    ('type: "SegAccuracy"', [X, X], "labels"), ('type: "SegAccuracy"', [X, X[:, :1] * 0 + 4], "label 4"),
    ('type: "SoftmaxWithLoss" loss_param { weight_by_label_freqs: true class_weighting: 1 }', [X, X[:, 0]],
     "each of 4"),
    ('type: "L1Loss"', [X, X[:, :1]], "one size")])
def test_what_cannot_be(text: str, inputs: list[np.ndarray], said: str) -> None:
    with pytest.raises(LayerError, match=said):
        Rig(text, inputs).forward()


def test_pspnets_bn_has_one_top() -> None:
    with pytest.raises(LayerError, match="1 top"):
        Rig(PSPNET % "", [X], n_tops=2)
