"""Losses and accuracy by value, with every option, and the errors of wrong labels and shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.proto import caffe_pb2
from tests.layers.rig import Rig, spread
from tests.reference import losses as reference

SCORES, LABELS = spread((5, 4), -3, 3), np.array([0, 3, 1, 3, 2.0])
MODES = ("FULL", "VALID", "BATCH_SIZE", "NONE")


def value(text: str, *inputs: np.ndarray) -> float:
    """The loss."""
    return float(Rig(text, list(inputs)).forward()[0])


def test_euclidean() -> None:
    a, b = spread((3, 2, 2, 2), seed=1), spread((3, 2, 2, 2), seed=2)
    assert value('type: "EuclideanLoss"', a, b) == pytest.approx(reference.euclidean(a, b))
    assert value('type: "EuclideanLoss"', a, b.reshape(3, 8)) == pytest.approx(reference.euclidean(a, b))


@pytest.mark.parametrize(("text", "power"), [("", 1), ("hinge_loss_param { norm: L2 }", 2)])
def test_hinge(text: str, power: int) -> None:
    assert value(f'type: "HingeLoss" {text}', SCORES, LABELS) == pytest.approx(
        reference.hinge(SCORES, LABELS, power))


def test_multinomial_logistic_and_its_clamp() -> None:
    probabilities = spread((5, 4), 0.01, 1)
    text = 'type: "MultinomialLogisticLoss"'
    expected = reference.multinomial_logistic(probabilities, LABELS)
    assert value(text, probabilities, LABELS) == pytest.approx(expected)
    assert value(text, np.zeros((1, 2)), np.array([1.0])) == pytest.approx(46.051701859880914)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("margin", [0.4, 2.5])
def test_contrastive(legacy: bool, margin: float) -> None:
    a, b, similar = spread((6, 3), seed=1), spread((6, 3), seed=2), np.array([1, 0, 0, 1, 0, 0.0])
    options = f"margin: {margin} legacy_version: {str(legacy).lower()}"
    text = f'type: "ContrastiveLoss" contrastive_loss_param {{ {options} }}'
    assert value(text, a, b, similar) == pytest.approx(reference.contrastive(a, b, similar, margin, legacy), rel=1e-6)


def test_contrastive_gradient_has_caffes_small_number() -> None:
    a, b = np.array([[0.3, 0.4]]), np.zeros((1, 2))
    got = Rig('type: "ContrastiveLoss"', [a, b, np.zeros(1)]).backward([1.0], [True, True, False])[0]
    expected = -(1 - 0.5) / (0.5 + 1e-4) * a
    np.testing.assert_allclose(got[0], expected)
    np.testing.assert_allclose(got[1], -expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ignored", [None, 2])
def test_sigmoid_cross_entropy(mode: str, ignored: int | None) -> None:
    x, targets = spread((3, 2, 2, 2), -4, 4), spread((3, 2, 2, 2), 0, 3.4, seed=4).astype(int) / 2
    targets = np.where(targets == 0.5, 2, targets)
    text = f'type: "SigmoidCrossEntropyLoss" loss_param {{ normalization: {mode}'
    text += f" ignore_label: {ignored} }}" if ignored is not None else " }"
    expected = reference.sigmoid_cross_entropy(x, targets, ignored, mode)
    assert value(text, x, targets) == pytest.approx(expected)


@pytest.mark.parametrize(("text", "mode"), [("", "BATCH_SIZE"), ("loss_param { normalize: true }", "VALID"),
                                            ("loss_param { normalize: false }", "BATCH_SIZE")])
def test_sigmoid_cross_entropy_defaults(text: str, mode: str) -> None:
    x, targets = spread((3, 4), -4, 4), np.ones((3, 4))
    expected = reference.sigmoid_cross_entropy(x, targets, None, mode)
    assert value(f'type: "SigmoidCrossEntropyLoss" {text}', x, targets) == pytest.approx(expected)


@pytest.mark.parametrize("mode", MODES)
def test_infogain(mode: str) -> None:
    scores, gains = spread((2, 3, 2, 2), -2, 2), spread((3, 3), 0, 1, seed=2)
    labels = np.array([0, 2, -1, 1, 1, 0, -1, 2.0]).reshape(2, 2, 2)
    text = f'type: "InfogainLoss" loss_param {{ normalization: {mode} ignore_label: -1 }}'
    expected = reference.infogain(scores.reshape(2, 3, 4), labels.reshape(2, 4), gains, -1, mode)
    rig = Rig(text, [scores, labels, gains], n_tops=2)
    loss, prob = rig.forward()
    assert float(loss) == pytest.approx(expected)
    np.testing.assert_allclose(prob, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True))


def test_infogain_matrix_from_a_file(tmp_path: Path) -> None:
    gains = spread((4, 4), 0, 1).astype(np.float32)
    blob = caffe_pb2.BlobProto(data=gains.ravel())
    path = tmp_path / "gains.binaryproto"
    path.write_bytes(blob.SerializeToString())
    text = f'type: "InfogainLoss" infogain_loss_param {{ source: "{path}" }}'
    assert value(text, SCORES, LABELS) == pytest.approx(value('type: "InfogainLoss"', SCORES, LABELS, gains))


@pytest.mark.parametrize("options", ["", "infogain_loss_param { source: 'nowhere' }", "loss_param { normalize: true }"])
def test_infogain_without_a_matrix(options: str) -> None:
    with pytest.raises(LayerError):
        Rig(f'type: "InfogainLoss" {options}', [SCORES, LABELS])


@pytest.mark.parametrize("layer_type", ["HingeLoss", "MultinomialLogisticLoss", "InfogainLoss", "Accuracy"])
@pytest.mark.parametrize("label", [4, -1])
def test_label_out_of_range(layer_type: str, label: int) -> None:
    inputs = [SCORES, np.array([0, 1, 2, 3, label])]
    rig = Rig(f'type: "{layer_type}"', inputs + [np.eye(4)] * (layer_type == "InfogainLoss"))
    with pytest.raises(LayerError, match=f"label {label}"):
        rig.forward()


@pytest.mark.parametrize("layer_type", ["EuclideanLoss", "HingeLoss", "MultinomialLogisticLoss", "InfogainLoss",
                                        "SigmoidCrossEntropyLoss", "Accuracy"])
def test_labels_that_do_not_fit(layer_type: str) -> None:
    with pytest.raises(LayerError):
        Rig(f'type: "{layer_type}"', [SCORES, np.zeros(4)] + [np.eye(4)] * (layer_type == "InfogainLoss"))


@pytest.mark.parametrize("layer_type", ["HingeLoss", "MultinomialLogisticLoss", "InfogainLoss",
                                        "SigmoidCrossEntropyLoss", "Accuracy"])
def test_labels_have_no_gradient(layer_type: str) -> None:
    labels = np.zeros((5, 4)) if layer_type == "SigmoidCrossEntropyLoss" else LABELS
    rig = Rig(f'type: "{layer_type}"', [np.abs(SCORES), labels] + [np.eye(4)] * (layer_type == "InfogainLoss"))
    assert not rig.layer.allow_force_backward(1)
    with pytest.raises(LayerError, match="no gradient"):
        rig.backward([1.0])


def test_an_infogain_matrix_has_no_gradient_whoever_asks_for_one() -> None:
    """As Caffe's force_backward does, which its layer allows."""
    rig = Rig('type: "InfogainLoss"', [np.abs(SCORES), LABELS, np.eye(4)])
    assert rig.layer.allow_force_backward(2)
    said = "bottom 2, but propagate_down, force_backward or a layer that learns below it asks for one"
    with pytest.raises(LayerError, match=said):
        rig.layer.backward(rig.top, [True, False, True], rig.bottom)


@pytest.mark.parametrize("top_k", [1, 2, 3, 4])  # of 4 classes
@pytest.mark.parametrize("ignored", [None, 1])
def test_accuracy(top_k: int, ignored: int | None) -> None:
    scores = np.round(spread((3, 4, 2, 3), seed=5) * 2) / 2  # coarse, so that there are ties
    labels = np.random.default_rng(1).integers(0, 4, (3, 2, 3))
    option = f" ignore_label: {ignored}" if ignored is not None else ""
    rig = Rig(f'type: "Accuracy" accuracy_param {{ top_k: {top_k}{option} }}', [scores, labels], n_tops=2)
    share, per_class = rig.forward()
    expected = reference.accuracy(scores.reshape(3, 4, 6), labels.reshape(3, 6), top_k, ignored)
    assert float(share) == pytest.approx(expected[0])
    np.testing.assert_allclose(per_class, expected[1])


@pytest.mark.parametrize("option", ["top_k: 5", "top_k: 4 axis: 2"])
def test_accuracy_wants_as_many_classes_as_top_k(option: str) -> None:
    with pytest.raises(LayerError, match=r"top_k must be at most [43], the number of classes, got [54]"):
        labels = np.zeros((2, 3)) if "axis" not in option else np.zeros((2, 4))
        Rig(f'type: "Accuracy" accuracy_param {{ {option} }}', [np.zeros((2, 4, 3)), labels])


def test_accuracy_axis_ties_and_nothing_to_count() -> None:
    scores = spread((2, 3, 4))
    labels = np.array([[0, 1, 3], [2, 0, 1.0]])
    got = Rig('type: "Accuracy" accuracy_param { axis: -1 }', [scores, labels]).forward()[0]
    assert float(got) == pytest.approx(reference.accuracy(np.moveaxis(scores, 2, 1), labels)[0])
    assert value('type: "Accuracy"', np.ones((2, 3)), np.zeros(2)) == 0
    assert value('type: "Accuracy"', np.full((2, 3), np.nan), np.zeros(2)) == 0
    assert value('type: "Accuracy" accuracy_param { ignore_label: 0 }', np.eye(3), np.zeros(3)) == 0


def test_balanced_sigmoid_cross_entropy() -> None:
    x, t = spread((2, 1, 2, 3), -3, 3), np.array([[0, 1, 0, 0, 1, 0], [1, 1, 1, 0, 2, 0.0]])
    wanted = 0.0
    for row, targets in zip(x.reshape(2, 6), t, strict=True):
        n_positive, n_negative = (targets == 1).sum(), (targets == 0).sum()
        for value, target in zip(row, targets, strict=True):
            if target < 2:
                share = (n_negative if target else n_positive) / (n_positive + n_negative)
                wanted -= share * np.log(1 / (1 + np.exp(-value if target else value))) / 2
    text = 'type: "SigmoidCrossEntropyBalanceLoss"'
    assert Rig(text, [x, t.reshape(x.shape)]).forward()[0] == pytest.approx(wanted)
    with pytest.raises(LayerError, match="a target per prediction"):
        Rig(text, [x, t[:, :3]])
