"""The sequence forks' layers by value."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig, spread
from tests.reference import sequence as reference

T, N, DEPTH = 5, 3, 2
FILL = 'num_output: 2 weight_filler { type: "uniform" min: -1 } bias_filler { type: "uniform" min: -1 }'


def by_reference(rig: Rig, x: np.ndarray, cont: np.ndarray, states: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return reference.lstm(x, cont, *(blob.data for blob in rig.layer.blobs), *states)


def states() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((N, DEPTH)), np.zeros((N, DEPTH))


@pytest.mark.parametrize(("options", "shape", "out"), [
    ("", (T, N, 4), (T, N, DEPTH)), ("batch_size: 3", (T * N, 4), (T * N, DEPTH)),
    ("batch_size: 3", (T * N, 2, 1, 2), (T * N, DEPTH))])
def test_lstm(options: str, shape: tuple[int, ...], out: tuple[int, ...]) -> None:
    x, cont = spread(shape, -2, 2), np.ones((T, N))
    cont[0] = 0
    rig = Rig(f'type: "Lstm" lstm_param {{ {FILL} {options} }}', [x])
    assert [blob.shape for blob in rig.layer.blobs] == [(8, 4), (8, DEPTH), (8,)]
    expected = by_reference(rig, x.reshape(T, N, 4), cont, states()).reshape(out)
    for _ in range(2):  # without indicators every forward begins anew
        np.testing.assert_allclose(rig.forward()[0], expected)


def test_lstm_with_indicators_goes_on_from_the_forward_before() -> None:
    rng, at = np.random.default_rng(3), states()
    x, cont = spread((T * N, 4), -2, 2), rng.integers(0, 2, (T, N)).astype(float)
    rig = Rig(f'type: "Lstm" lstm_param {{ {FILL} batch_size: 3 }}', [x, cont.ravel()])
    for _ in range(3):
        expected = by_reference(rig, x.reshape(T, N, 4), cont, at)
        np.testing.assert_allclose(rig.forward()[0], expected.reshape(T * N, DEPTH))


def test_the_gradients_of_gates_are_bounded() -> None:
    x = spread((1, N, 4))
    rig = Rig(f'type: "Lstm" lstm_param {{ {FILL} clipping_threshold: 0.01 }}', [x])
    bottoms, (gw, gh, gb) = rig.backward([np.full((1, N, DEPTH), 1e3)])
    assert np.abs(gb).max() <= N * 0.0101 and np.abs(gb).max() > 0 and not gh.any()
    np.testing.assert_allclose(np.abs(bottoms[0]).max(), 0.01 * np.abs(rig.layer.blobs[0].data).sum(0).max(), rtol=0.9)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reverse_and_transpose(axis: int) -> None:
    x = spread((2, 3, 4))
    np.testing.assert_array_equal(Rig(f'type: "Reverse" reverse_param {{ axis: {axis} }}', [x]).forward()[0],
                                  np.flip(x, axis))
    order = [(0, 1, 2), (2, 0, 1), (1, 2, 0)][axis]
    text = 'type: "Transpose" transpose_param { ' + " ".join(f"dim: {a}" for a in order) + " }"
    np.testing.assert_array_equal(Rig(text, [x]).forward()[0], np.transpose(x, order))


@pytest.mark.parametrize(("width", "height"), [(True, False), (False, True), (True, True), (False, False)])
def test_flip(width: bool, height: bool) -> None:
    x = spread((2, 3, 4, 5))
    axes = [axis for axis, flips in ((2, height), (3, width)) if flips]
    text = f'type: "Flip" flip_param {{ flip_width: {str(width).lower()} flip_height: {str(height).lower()} }}'
    np.testing.assert_array_equal(Rig(text, [x]).forward()[0], np.flip(x, axes))


@pytest.mark.parametrize("copies", [False, True])
def test_reverse_time(copies: bool) -> None:
    x, lengths = spread((4, 3, 2)), [4, 0, 3]
    text = f'type: "ReverseTime" reverse_time_param {{ copy_remaining: {str(copies).lower()} }}'
    expected = x.copy() if copies else np.zeros_like(x)
    for n, length in enumerate(lengths):
        expected[:length, n] = x[:length, n][::-1]
    np.testing.assert_array_equal(Rig(text, [x, np.array(lengths)]).forward()[0], expected)


def test_continuation_indicators() -> None:
    text = 'type: "ContinuationIndicator" continuation_indicator_param { time_step: 3 batch_size: 2 %s }'
    np.testing.assert_array_equal(Rig(text % "", [], 1).forward()[0], [[0, 0], [1, 1], [1, 1]])
    np.testing.assert_array_equal(Rig(text % "flag: true", [], 1).forward()[0], np.ones((3, 2)))
    np.testing.assert_array_equal(Rig(text % "", [np.array([1, 0.0])]).forward()[0], [[1, 0], [1, 1], [1, 1]])


SCORES = spread((5, 3, 3), -2, 2)
LABELS = [[1, 2], [1, 1], [2]]


def expected_loss(scores: np.ndarray, lengths: list[int], labels: list[list[int]], blank: int) -> float:
    return float(np.mean([reference.ctc(scores[:n, i], labels[i], blank) for i, n in enumerate(lengths)]))


def test_ctc_loss_of_labels_with_blanks() -> None:
    rows = np.array([[1, 0, 2], [1, 1, 0], [0, 0, 2]])
    short = 'type: "CtcLoss" ctc_loss_param { alphabet_size: 3 time_step: 4 }'
    for text, steps in (('type: "WarpCTCLoss"', 5), (short, 4)):
        for scores in (SCORES, SCORES[..., None]):
            rig = Rig(text, [scores, rows])
            assert rig.forward()[0] == pytest.approx(expected_loss(SCORES, [steps] * 3, LABELS, 0))


def test_ctc_loss_of_indicators() -> None:
    """Labels count from 0 without the blank, if that is 0."""
    indicators = np.array([[0, 0, 0], [1, 1, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1.0]])
    labels = np.array([[0, 0, 1], [1, 0, -1], [-1, -1, -1], [-1, -1, -1], [-1, -1, -1.0]])
    rig = Rig('type: "WarpCTCLoss"', [SCORES, indicators, labels])
    assert rig.forward()[0] == pytest.approx(expected_loss(SCORES, [3, 5, 2], LABELS, 0))
    rig = Rig('type: "WarpCTCLoss" ctc_loss_param { blank_index: 2 }', [SCORES, indicators, labels])
    assert rig.forward()[0] == pytest.approx(expected_loss(SCORES, [3, 5, 2], [[0, 1], [0, 0], [1]], 2))


def test_ctc_loss_of_lengths() -> None:
    labels = np.array([[1, 1, 2], [2, 1, 9.0]])
    rig = Rig('type: "WarpCTCLoss"', [SCORES, np.array([4, 5, 2.0]), np.array([2, 2, 1.0]), labels])
    assert rig.forward()[0] == pytest.approx(expected_loss(SCORES, [4, 5, 2], LABELS, 0))


def test_the_gradient_of_ctc_is_that_of_the_sum() -> None:
    rows, step = np.array([[1, 2], [1, 1], [2, 0]]), 1e-6
    rig = Rig('type: "WarpCTCLoss"', [SCORES, rows])
    (got, _), _ = rig.backward([2.0], [True, False])
    for place in ((0, 0, 1), (3, 1, 0), (4, 2, 2)):
        sides = []
        for sign in (1, -1):
            moved = SCORES.copy()
            moved[place] += sign * step
            sides.append(3 * expected_loss(moved, [5] * 3, LABELS, 0))
        assert got[place] == pytest.approx(2 * (sides[0] - sides[1]) / (2 * step), rel=1e-5, abs=1e-8)


def test_too_few_steps_cost_nothing_as_in_warp_ctc() -> None:
    rig = Rig('type: "WarpCTCLoss"', [SCORES[:2, :1], np.array([[1, 1]])])
    assert rig.forward()[0] == 0
    assert not rig.backward([1.0], [True, False])[0][0].any()


@pytest.mark.parametrize(("options", "blank", "merges"), [("", 0, True), ("blank_index: -1", 2, True),
                                                         ("blank_index: 1 ctc_merge_repeated: false", 1, False)])
def test_greedy_decoding(options: str, blank: int, merges: bool) -> None:
    scores = np.random.default_rng(1).integers(0, 4, (9, 4, 3)).astype(float)  # with ties: the first counts
    text = f'type: "CTCGreedyDecoder" ctc_decoder_param {{ {options} }}'
    paths = [tuple(row.index(max(row)) for row in scores[:, n].tolist()) for n in range(4)]
    found = [reference.collapsed(path, blank, merges) for path in paths]
    got = Rig(text, [scores]).forward()[0]
    assert got.shape == (4, 9, 1, 1)
    for row, labels in zip(got[:, :, 0, 0], found, strict=True):
        assert row.tolist() == labels + [-1] * (9 - len(labels))
    labels = [found[0], found[1][1:], [2, 0, 1, 0, 2], []]
    rows = np.full((4, 9), -1.0)
    for row, values in zip(rows, labels, strict=True):
        row[: len(values)] = values
    wanted = [[v for v in values if v != blank] for values in labels]
    lost = [reference.distance(a, b) / max(len(a), len(b), 1) for a, b in zip(found, wanted, strict=True)]
    right = [a == b and len(a) > 0 for a, b in zip(found, wanted, strict=True)]
    np.testing.assert_allclose(Rig(text, [scores, rows]).forward()[0].ravel(), [1 - np.mean(lost), np.mean(right)])


@pytest.mark.parametrize(("text", "inputs", "said"), [
    ('"Lstm"', [SCORES], "num_output"), ('"Lstm" lstm_param { num_output: 2 }', [np.zeros(4)], "takes"),
    ('"Lstm" lstm_param { num_output: 2 batch_size: 2 }', [np.zeros((3, 4))], "2 sequence"),
    ('"Lstm" lstm_param { num_output: 2 }', [SCORES, np.zeros(3)], "15 continuation"),
    ('"Reverse" reverse_param { axis: 3 }', [SCORES], "axis 3"),
    ('"Reverse" reverse_param { axis: -1 }', [SCORES], "axis -1"),
    ('"Transpose" transpose_param { dim: 1 dim: 0 }', [SCORES], "3 axes"),
    ('"Transpose" transpose_param { dim: 1 dim: 0 dim: -1 }', [SCORES], "choice"),
    ('"Flip"', [SCORES], "images"), ('"ReverseTime"', [SCORES, np.zeros(2)], "lengths"),
    ('"ReverseTime"', [SCORES, np.full(3, 6)], "0 to 5"),
    ('"ContinuationIndicator" continuation_indicator_param { time_step: 3 }', [np.zeros(1)], "batch_size"),
    ('"WarpCTCLoss"', [SCORES[0], np.zeros((3, 2))], "T, N, C"),
    ('"WarpCTCLoss"', [SCORES, np.zeros((2, 2))], "bottom 1"),
    ('"WarpCTCLoss"', [SCORES, np.full((3, 2), 3)], "label 3"),
    ('"WarpCTCLoss"', [SCORES, np.full((3, 2), -1)], "label -1"),
    ('"WarpCTCLoss" ctc_loss_param { blank_index: 3 }', [SCORES, np.zeros((3, 2))], "blank label 3"),
    ('"WarpCTCLoss"', [SCORES, np.ones((5, 3)), np.full((5, 3), -1)], "0 label"),
    ('"WarpCTCLoss"', [SCORES, np.full(3, 6), np.ones(3), np.ones((2, 3))], "at most 5 steps"),
    ('"CtcLoss"', [SCORES, np.zeros((3, 2))], "alphabet_size 3"),
    ('"CtcLoss" ctc_loss_param { alphabet_size: 3 time_step: 5 }', [SCORES, np.zeros((3, 2))], "blank"),
    ('"CTCGreedyDecoder" ctc_decoder_param { blank_index: 3 }', [SCORES], "blank_index 3"),
    ('"CTCGreedyDecoder"', [SCORES, np.zeros((2, 2))], "labels")])
def test_what_cannot_be(text: str, inputs: list[np.ndarray], said: str) -> None:
    with pytest.raises(LayerError, match=said):
        Rig(f"type: {text}", inputs).forward()


@pytest.mark.parametrize("text", ['"Reverse"', '"Transpose" transpose_param { dim: 0 dim: 1 dim: 2 }'])
def test_not_in_place(text: str) -> None:
    with pytest.raises(LayerError, match="in place"):
        Rig(f"type: {text}", [SCORES], in_place=True)


def test_sequences_read_without_a_mistake() -> None:
    best = np.array([[0, 0, 2, 0, 1], [2, 1, 1, 0, 2], [1, 2, 1, 1, 1], [2, 2, 2, 2, 2]])
    labels = np.array([[0, 0, 1], [1, 0, 2], [1, 2, 2], [2, 2, 2.0]])  # 2 is blank: read 001, 10, 11 and nothing
    text = 'type: "LabelsequenceAccuracy" labelsequence_accuracy_param { blank_label: 2 }'
    assert Rig(text, [np.eye(3)[best], labels]).forward()[0] == 3 / 4
    with pytest.raises(LayerError, match="labels"):
        Rig(text, [np.eye(3)[best], labels[:2]])
