"""The R-CNN family's layers by value, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.detection.anchors import RATIOS, SCALES, base_anchors
from tests.layers.rig import Rig, spread
from tests.reference import forks
from tests.reference import rcnn as reference

IMAGE = spread((2, 3, 5, 7))
REGIONS = np.array([[0, 0, 0, 9, 7], [1, 3, 2, 5, 8], [1, 4, 4, 4, 4], [0, 30, 0, 40, 3], [0, 9, 9, 2, 2],
                    [1, 1, 1, 4, 6], [0, -5, -3, 30, 20], [1, 0.5, 1.5, 2.5, 7.5], [0, 12.4, 8.6, 13, 9]])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def run(text: str, *inputs: np.ndarray, n_tops: int = 1, dtype: type = np.float64) -> list[np.ndarray]:
    """The tops."""
    return Rig(text, list(inputs), n_tops, dtype=dtype).forward()


@DTYPES
@pytest.mark.parametrize("pooled", [(3, 2), (1, 1), (7, 9)])
def test_roi_pooling(pooled: tuple[int, int], dtype: type) -> None:
    got = run(f'type: "ROIPooling" roi_pooling_param {{ pooled_h: {pooled[0]} pooled_w: {pooled[1]} spatial_scale: 0.5 '
              '}', IMAGE, REGIONS, dtype=dtype)[0]
    np.testing.assert_array_equal(got, forks.roi_pooling(IMAGE, REGIONS, pooled, 0.5).astype(dtype))


def test_roi_pooling_of_padded_regions() -> None:
    got = run('type: "ROIPooling" roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 pad_ratio: 0.25 }',
              IMAGE, REGIONS)[0]
    margins = 0.25 * (REGIONS[:, 3:] - REGIONS[:, 1:3] + 1)
    longer = np.concatenate([REGIONS[:, :1], REGIONS[:, 1:3] - margins, REGIONS[:, 3:] + margins], axis=1)
    np.testing.assert_array_equal(got, forks.roi_pooling(IMAGE, longer, (2, 3), 0.5))


@DTYPES
@pytest.mark.parametrize(("outputs", "group"), [(1, 1), (2, 3), (3, 2)])
def test_ps_roi_pooling(outputs: int, group: int, dtype: type) -> None:
    maps = spread((2, outputs * group**2, 5, 7))
    got = run(f'type: "PSROIPooling" psroi_pooling_param {{ output_dim: {outputs} group_size: {group} '
              'spatial_scale: 0.5 }', maps, REGIONS, dtype=dtype)[0]
    expected = reference.ps_roi_pooling(maps, REGIONS, outputs, group, 0.5)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@DTYPES
@pytest.mark.parametrize("ratio", [-1, 1, 3])
def test_roi_align(ratio: int, dtype: type) -> None:
    got = run(f'type: "ROIAlign" roi_align_param {{ pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 sampling_ratio: {ratio} '
              '}', IMAGE, REGIONS, dtype=dtype)[0]
    np.testing.assert_allclose(got, reference.roi_align(IMAGE, REGIONS, (2, 3), 0.5, ratio), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", ["sampling_ratio: 2147483647", "spatial_scale: 1e9", "spatial_scale: inf"])
def test_roi_align_of_endless_samples(options: str) -> None:
    with pytest.raises(LayerError, match="at most 8192 samples"), np.errstate(invalid="ignore"):
        run(f'type: "ROIAlign" roi_align_param {{ pooled_h: 1 pooled_w: 1 {options} }}', IMAGE, REGIONS)


@DTYPES
@pytest.mark.parametrize("pad", [0, 0.3])
def test_roi_align_at_corners(pad: float, dtype: type) -> None:
    got = run(f'type: "ROIAlign" roi_pooling_param {{ pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 pad_ratio: {pad} }}',
              IMAGE, REGIONS, dtype=dtype)[0]
    expected = reference.roi_align_corners(IMAGE, REGIONS, (2, 3), 0.5, pad)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("n_bottoms", "divisor"), [(2, 2), (3, 2), (4, 2)])
@pytest.mark.parametrize("sigma", [1, 3, 0.5])
def test_smooth_l1_loss(n_bottoms: int, divisor: int, sigma: float) -> None:
    blobs = [spread((2, 3, 2, 4), -2, 2, seed=i) for i in range(4)]
    got = run(f'type: "SmoothL1Loss" smooth_l1_loss_param {{ sigma: {sigma} }}', *blobs[:n_bottoms])[0]
    one = np.ones_like(blobs[0])
    weights = [*blobs[2:n_bottoms], one, one][:2]
    assert got == pytest.approx(reference.smooth_l1(*blobs[:2], *weights, sigma).sum() / divisor)


@pytest.mark.parametrize(("options", "divisor"), [
    ("", 16), ("normalization: FULL", 16), ("normalization: BATCH_SIZE", 2), ("normalization: NONE", 1),
    ("normalize: false", 2), ("normalization: PRE_FIXED pre_fixed_normalizer: 128", 128),
    ("normalization: PRE_FIXED pre_fixed_normalizer: 0.5", 1)])
def test_smooth_l1_loss_of_each_position(options: str, divisor: float) -> None:
    a, b, w = (spread((2, 3, 2, 4), -2, 2, seed=i) for i in range(3))
    loss, each = run(f'type: "SmoothL1LossOHEM" loss_param {{ {options} }}', a, b, w, n_tops=2)
    expected = reference.smooth_l1(a, b, w, np.ones_like(a), 1)
    assert loss == pytest.approx(expected.sum() / divisor)
    np.testing.assert_allclose(each, expected.sum(axis=1, keepdims=True))


def test_smooth_l1_loss_of_each_region() -> None:
    a, b = spread((5, 8, 1, 1), -2, 2), spread((5, 8), -2, 2, seed=1)
    loss, each = run('type: "SmoothL1LossOHEM"', a, b, n_tops=2)
    one = np.ones((5, 8))
    expected = reference.smooth_l1(a.reshape(5, 8), b, one, one, 1)
    assert each.shape == (5, 1, 1, 1)
    np.testing.assert_allclose(each.ravel(), expected.sum(axis=1))
    assert loss == pytest.approx(expected.sum() / 5)


def test_softmax_loss_of_each_position() -> None:
    scores, labels = spread((3, 4), -2, 2), np.array([1, -1, 3.0]).reshape(3, 1, 1, 1)
    loss, prob, each = run('type: "SoftmaxWithLossOHEM" loss_param { ignore_label: -1 }', scores, labels, n_tops=3)
    powers = np.exp(scores)
    expected = powers / powers.sum(axis=1, keepdims=True)
    losses = [-np.log(expected[0, 1]), 0, -np.log(expected[2, 3])]
    np.testing.assert_allclose(prob, expected)
    np.testing.assert_allclose(each, np.reshape(losses, (3, 1, 1, 1)))
    assert loss == pytest.approx(sum(losses) / 2)


@pytest.mark.parametrize("n_per_item", [1, 2, 3, 100])
def test_box_annotator(n_per_item: int) -> None:
    items, losses = [1, 0, 1, 1, 0, 2, 1], [0.5, 3, 0.25, 0.5, 0.1, 9, 2]
    regions = np.zeros((7, 5))
    regions[:, 0] = items
    labels, weights = np.arange(1, 8.0).reshape(7, 1, 1, 1), spread((7, 8))
    options = f"box_annotator_ohem_param {{ roi_per_img: {n_per_item} ignore_label: -7 }}"
    got = run(f'type: "BoxAnnotatorOHEM" {options}', regions, np.reshape(losses, (7, 1, 1, 1)), labels, weights,
              n_tops=2)
    chosen = np.array(reference.hardest(losses, items, n_per_item))
    np.testing.assert_array_equal(got[0].ravel(), np.where(chosen, labels.ravel(), -7))
    np.testing.assert_array_equal(got[1].reshape(7, 8), weights * chosen[:, None])


RPN = "feat_stride: 4 base_size: 8 min_size: {least} ratio: 0.5 ratio: 1 ratio: 2 scale: 1 scale: 2"


@DTYPES
@pytest.mark.parametrize(("least", "before", "after", "threshold"), [
    (1, 1000, 1000, 0.7), (1, 1000, 1000, 0.2), (6, 50, 20, 0.7), (40, 30, 5, 0.99)])
def test_proposal(least: int, before: int, after: int, threshold: float, dtype: type) -> None:
    scores, deltas = spread((1, 12, 4, 6), 0.1, 1, seed=1), spread((1, 24, 4, 6), -0.6, 0.6, seed=2)
    info = np.array([[17, 23, 1.5, 1.25]])
    text = (f'type: "Proposal" proposal_param {{ {RPN.format(least=least)} pre_nms_topn: {before} '
            f'post_nms_topn: {after} nms_thresh: {threshold} }}')
    regions, kept = run(text, scores, deltas, info, n_tops=2, dtype=dtype)
    base = reference.anchors(8, [0.5, 1, 2], [1, 2])
    expected = reference.proposals(scores[0], deltas[0], list(info[0]), base, 4, least, before, after, threshold)
    assert (regions[:, 0] == 0).all()
    np.testing.assert_allclose(kept, [score for score, _ in expected], rtol=1e-6)
    np.testing.assert_allclose(regions[:, 1:], [box for _, box in expected], rtol=1e-5, atol=1e-5)


def test_anchors_are_py_faster_rcnns() -> None:
    """The table in the comment of its generate_anchors.py, whose corners count from 1."""
    expected = [[-83, -39, 100, 56], [-175, -87, 192, 104], [-359, -183, 376, 200], [-55, -55, 72, 72],
                [-119, -119, 136, 136], [-247, -247, 264, 264], [-35, -79, 52, 96], [-79, -167, 96, 184],
                [-167, -343, 184, 360]]
    np.testing.assert_array_equal(base_anchors(16, RATIOS, SCALES) + 1, expected)


SMALL, RPN_IN = np.zeros((1, 4, 2, 2)), [np.zeros((1, 18, 2, 2)), np.zeros((1, 36, 2, 2)), np.zeros((1, 3))]


@pytest.mark.parametrize(("text", "inputs", "n_tops"), [
    ('type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 0 }', [SMALL, SMALL], 1),
    ('type: "SmoothL1Loss"', [SMALL, np.zeros((1, 4, 4))], 1), ('type: "SmoothL1Loss"', [SMALL], 1),
    ('type: "SmoothL1Loss"', [SMALL, np.zeros((2, 4, 2, 2))], 1), ('type: "SmoothL1LossOHEM"', [SMALL] * 4, 1),
    ('type: "SoftmaxWithLossOHEM"', [SMALL, np.zeros(3)], 1),
    ('type: "ROIAlign"', [IMAGE, REGIONS], 1),
    ('type: "ROIAlign" roi_align_param { pooled_h: 1 pooled_w: 1 }', [IMAGE, np.zeros((1, 4))], 1),
    ('type: "PSROIPooling" psroi_pooling_param { spatial_scale: 1 output_dim: 2 group_size: 2 }', [IMAGE, REGIONS], 1),
    ('type: "PSROIPooling" psroi_pooling_param { spatial_scale: 1 output_dim: 3 group_size: 0 }', [IMAGE, REGIONS], 1),
    ('type: "BoxAnnotatorOHEM" box_annotator_ohem_param { roi_per_img: 0 }', [np.zeros((2, 5)), *[np.zeros(2)] * 3], 2),
    ('type: "BoxAnnotatorOHEM" box_annotator_ohem_param { roi_per_img: 1 }', [np.zeros((2, 4)), *[np.zeros(2)] * 3], 2),
    ('type: "Proposal"', [np.zeros((2, 18, 2, 2)), *RPN_IN[1:]], 1),
    ('type: "Proposal"', [*RPN_IN[:2], np.zeros(2)], 1),
    ('type: "Proposal" proposal_param { scale: 1 }', RPN_IN, 1),
    ('type: "Proposal" proposal_param { scale: 0 }', RPN_IN, 1),
    ('type: "Proposal" proposal_param { post_nms_topn: 0 }', RPN_IN, 1)])
def test_what_cannot_be(text: str, inputs: list[np.ndarray], n_tops: int) -> None:
    with pytest.raises(LayerError):
        Rig(text, inputs, n_tops)


@pytest.mark.parametrize("text", [
    'type: "ROIAlign" roi_align_param { pooled_h: 1 pooled_w: 1 }',
    'type: "PSROIPooling" psroi_pooling_param { spatial_scale: 1 output_dim: 3 group_size: 1 }'])
@pytest.mark.parametrize("item", [-1, 2])
def test_regions_of_an_item_that_is_not_there(text: str, item: int) -> None:
    with pytest.raises(LayerError, match="batch of 2"):
        run(text, IMAGE, np.array([[item, 0, 0, 1, 1.0]]))


def test_no_regions_are_no_error() -> None:
    got = run('type: "ROIPooling" roi_pooling_param { pooled_h: 2 pooled_w: 2 }', IMAGE, np.zeros((0, 5)))[0]
    assert got.shape == (0, 3, 2, 2)
