"""YOLO's layers by value."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.yolo.boxes import CIOU, DIOU, GIOU, IOU, similarities, slopes
from tests.layers.rig import Rig, spread
from tests.reference import yolo as reference

N, CLASSES, SIDE = 3, 4, 5
PAIRS = [(1.0, 0.6), (0.5, 2.0), (3.0, 3.5)]
BIASES = " ".join(f"biases: {v}" for pair in PAIRS for v in pair)


def truth(n_items: int, n_rows: int = 6, seed: int = 3) -> np.ndarray:
    """Objects of every class; two in one cell; the last row of each item ends it."""
    rng = np.random.default_rng(seed)
    parts = (rng.integers(0, CLASSES, (n_items, n_rows, 1)), rng.uniform(0.05, 0.95, (n_items, n_rows, 2)),
             rng.uniform(0.05, 0.6, (n_items, n_rows, 2)))
    rows = np.concatenate(parts, axis=2)
    rows[:, 1, 1:3] = rows[:, 0, 1:3] + 1e-3
    rows[0, 4:] = 0
    return rows


@pytest.mark.parametrize(("shape", "stride", "reverse"), [
    ((2, 8, 4, 6), 2, False), ((1, 9, 3, 6), 3, False), ((2, 8, 3, 1), 2, True), ((1, 18, 2, 3), 3, True)])
def test_reorg(shape: tuple[int, ...], stride: int, reverse: bool) -> None:
    x = spread(shape)
    got = Rig(f'type: "Reorg" reorg_param {{ stride: {stride} reverse: {str(reverse).lower()} }}', [x]).forward()[0]
    np.testing.assert_array_equal(got, reference.reorg(x, stride, reverse))


@pytest.mark.parametrize("changes", [
    {}, {"rescore": 0}, {"bias_match": 0, "thresh": 0.1},
    {"object_scale": 5.0, "noobject_scale": 2.0, "class_scale": 0.5, "coord_scale": 3.0, "thresh": 0.6}])
def test_region_loss(changes: dict) -> None:
    x, labels = spread((N, 3 * (5 + CLASSES), SIDE, SIDE), -2, 2), truth(N)
    p = {"thresh": np.float32(0.2), "noobject_scale": 0.5, "object_scale": 1.0, "class_scale": 1.0, "coord_scale": 5.0,
         "rescore": 1, "bias_match": 1, **changes,
         "biases": [tuple(float(np.float32(v)) for v in pair) for pair in PAIRS]}
    options = " ".join(f"{name}: {value}" for name, value in changes.items())
    rig = Rig(f'type: "RegionLoss" region_loss_param {{ num: 3 num_class: {CLASSES} {BIASES} {options} }}',
              [x, labels.reshape(N, 1, 1, -1)])
    loss, differences = reference.region_loss(x.reshape(N, 3, -1, SIDE, SIDE), labels, p)
    assert rig.forward()[0] == pytest.approx(loss)
    bottoms, _ = rig.backward([2.0], [True, False])
    np.testing.assert_allclose(bottoms[0], 2 * differences.reshape(x.shape) / N, rtol=1e-6, atol=1e-9)


ANCHORS = [(4, 6), (12, 8), (20, 30), (9, 14)]
V3 = "num: 3 anchors_scale: 8 mask: 1 mask: 3 mask: 2 " + " ".join(f"biases: {v}" for pair in ANCHORS for v in pair)


@pytest.mark.parametrize("changes", [
    {}, {"use_logic_gradient": True, "object_scale": 3.0, "thresh": 0.6}, {"use_focal_loss": True, "iou_thresh": 1.0},
    {"label_smooth_eps": 0.0, "class_scale": 2.0, "coord_scale": 1.5, "iou_thresh": 0.25}])
def test_yolov3(changes: dict) -> None:
    height, width = 4, 6
    x, labels = spread((N, 3 * (5 + CLASSES), height, width), -2, 2), truth(N, seed=5)
    p = {"thresh": 0.2, "object_scale": 1.0, "class_scale": 1.0, "coord_scale": 5.0, "iou_thresh": 0.5,
         "label_smooth_eps": float(np.float32(0.1)), "use_logic_gradient": False, "use_focal_loss": False, **changes,
         "iou_loss": "MSE", "anchors_scale": 8, "mask": [1, 3, 2], "biases": ANCHORS}
    options = " ".join(f"{name}: {str(value).lower()}" for name, value in changes.items())
    rig = Rig(f'type: "Yolov3" yolov3_param {{ num_class: {CLASSES} {V3} {options} }}', [x, labels])
    loss, differences = reference.yolov3(x.reshape(N, 3, -1, height, width), labels, p)
    assert rig.forward()[0] == pytest.approx(loss)
    bottoms, _ = rig.backward([0.5], [True, False])
    np.testing.assert_allclose(bottoms[0], 0.5 * differences.reshape(x.shape) / N, rtol=1e-6, atol=1e-9)


BOXES = [(0.5, 0.5, 0.4, 0.2), (0.45, 0.6, 0.3, 0.3), (0.1, 0.1, 0.1, 0.15), (0.52, 0.5, 0.05, 0.05),
         (0.5, 0.9, 0.9, 0.1)]


@pytest.mark.parametrize("kind", ["IOU", "GIOU", "DIOU", "CIOU"])
def test_overlaps(kind: str) -> None:
    number = {"IOU": IOU, "GIOU": GIOU, "DIOU": DIOU, "CIOU": CIOU}[kind]
    for a in BOXES:
        got = similarities(np.array(a)[:, None], np.array(BOXES).T, number)
        np.testing.assert_allclose(got, [reference.alike(a, b, kind) for b in BOXES], atol=1e-12)


@pytest.mark.parametrize(("kind", "name"), [(IOU, "IOU"), (GIOU, "GIOU")])
def test_slopes_of_boxes_that_meet_are_the_derivatives(kind: int, name: str) -> None:
    """Those by width and height are twice the derivatives, as in darknet."""
    box, other, step = np.array([0.5, 0.5, 0.4, 0.2]), (0.42, 0.6, 0.3, 0.3), 1e-6
    for axis in range(4):
        sides = [reference.alike(tuple(box + sign * step * np.eye(4)[axis]), other, name) for sign in (1, -1)]
        slope = slopes(box, np.array(other), kind)[axis]
        assert slope == pytest.approx((sides[0] - sides[1]) / (2 * step) * (2 if axis > 1 else 1), rel=1e-5)


@pytest.mark.parametrize(("number", "kind"), [(DIOU, "DIOU"), (CIOU, "CIOU")])
def test_slopes_by_distance_and_shape(number: int, kind: str) -> None:
    """For boxes that meet, are one in the other, or are apart along one axis or both."""
    rng = np.random.default_rng(5)
    pairs = [(np.concatenate([rng.uniform(0.2, 0.8, 2), rng.uniform(0.05, 0.6, 2)]),
              np.concatenate([rng.uniform(0.2, 0.8, 2), rng.uniform(0.05, 0.6, 2)])) for _ in range(200)]
    meeting = [reference.alike(tuple(a), tuple(b), "IOU") > 0 for a, b in pairs]
    assert 50 < sum(meeting) < 150
    for box, other in pairs:
        np.testing.assert_allclose(slopes(box, other, number), reference.fork_slopes(box, other, kind), rtol=1e-5,
                                   atol=1e-7)


def test_slopes_of_boxes_apart() -> None:
    """IoU has none but through the product of two negative lengths; GIoU draws the box towards the other."""
    box, other = np.array([0.2, 0.5, 0.2, 0.2]), np.array([0.7, 0.5, 0.2, 0.2])
    assert slopes(box, other, GIOU)[0] > 0 and slopes(box, other, DIOU)[0] > 0


@pytest.mark.parametrize("kind", ["IOU", "GIOU", "DIOU", "CIOU"])
def test_yolov3_with_overlaps_sums_differences_and_lost_overlap(kind: str) -> None:
    """One object in one cell: the box learns by the slopes, the loss counts 1 - overlap, but DIoU's for IoU."""
    x = spread((1, 9, 1, 1), -1, 1)
    row = np.array([[[2, 0.4, 0.6, 0.5, 0.7], [0, 0, 0, 0, 0]]])
    rig = Rig('type: "Yolov3" yolov3_param { num_class: 4 num: 1 anchors_scale: 8 biases: 4 biases: 5 mask: 0 '
              "iou_normalizer: 0.5 label_smooth_eps: 0 thresh: 1 iou_thresh: 1 max_delta: 0.3 "
              f"iou_loss: {kind} }}", [x, row])
    scores = x.ravel()
    box = reference.v3_box(scores, (4, 5), 0, 0, (1, 1), 8)
    found = reference.alike(box, tuple(row[0, 0, 1:]), "DIOU" if kind == "IOU" else kind)
    seen = [reference.sigmoid(s) for s in scores[4:]]
    learned = [seen[0] - 1, *(s - (c == 2) for c, s in enumerate(seen[1:]))]
    assert rig.forward()[0] == pytest.approx(sum(v * v for v in learned) + 0.5 * (1 - found))
    bottoms, _ = rig.backward([1.0], [True, False])
    number = {"IOU": IOU, "GIOU": GIOU, "DIOU": DIOU, "CIOU": CIOU}[kind]
    by_box = slopes(np.array(box), row[0, 0, 1:], number) * [1, 1, exp(scores[2]), exp(scores[3])]
    np.testing.assert_allclose(bottoms[0].ravel()[:4], -np.clip(0.5 * by_box, -0.3, 0.3))
    np.testing.assert_allclose(bottoms[0].ravel()[4:], learned)


def v2_rows(x: np.ndarray, threshold: float) -> list[tuple]:
    """What YOLOv2 finds in one item, before suppression."""
    rows = []
    for n, j, i in np.ndindex(x.shape[0], *x.shape[2:]):
        scores = x[n, :, j, i]
        total = sum(exp(s) for s in scores[5:])
        best = int(np.argmax(scores[5:]))
        score = reference.sigmoid(scores[4]) * exp(scores[5 + best]) / total
        if score >= threshold:
            rows.append((score, best + 1, reference.region_box(scores, PAIRS[n], i, j, x.shape[3])))
    return rows


def check_rows(got: np.ndarray, items: list[list[tuple]]) -> None:
    expected = [[item, label, score, *reference.edges(box)] for item, rows in enumerate(items)
                for score, label, box in rows]
    assert got.shape == (1, 1, len(expected), 7)
    np.testing.assert_allclose(got[0, 0], expected, rtol=1e-5)


def test_yolo_detection_output() -> None:
    x, y = spread((2, 27, 3, 3), -2, 2), spread((2, 27, 2, 2), -2, 2, seed=4)
    rig = Rig(f'type: "YoloDetectionOutput" yolo_detection_output_param {{ num_classes: 4 num_box: 3 {BIASES} '
              "confidence_threshold: 0.25 nms_threshold: 0.3 }", [x, y])
    items = [v2_rows(x[b].reshape(3, 9, 3, 3), 0.25) + v2_rows(y[b].reshape(3, 9, 2, 2), 0.25) for b in range(2)]
    kept = [reference.suppress(rows, 0.3) for rows in items]
    assert all(0 < len(k) < len(rows) for k, rows in zip(kept, items, strict=True))
    check_rows(rig.forward()[0], kept)


def test_yolov3_detection_output() -> None:
    x, y = spread((2, 18, 2, 3), -2, 2), spread((2, 18, 4, 3), -2, 2, seed=4)
    rig = Rig('type: "Yolov3DetectionOutput" yolov3_detection_output_param { num_classes: 4 num_box: 2 '
              "confidence_threshold: 0.5 nms_threshold: 0.4 anchors_scale: 16 anchors_scale: 8 mask: 2 mask: 3 mask: 0 "
              "mask: 1 " + " ".join(f"biases: {v}" for pair in ANCHORS for v in pair) + " }", [x, y])
    kept = []
    for b in range(2):
        rows = []
        for blob, mask, scale in ((x, (2, 3), 16), (y, (0, 1), 8)):
            scores = blob[b].reshape(2, 9, *blob.shape[2:])
            for n, j, i, c in np.ndindex(2, *blob.shape[2:], 4):
                s = scores[n, :, j, i]
                if (score := reference.sigmoid(s[4]) * reference.sigmoid(s[5 + c])) > 0.5:
                    rows.append((score, c + 1, reference.v3_box(s, ANCHORS[mask[n]], i, j, blob.shape[2:], scale)))
        kept.append(reference.suppress(rows, 0.4))
        assert 0 < len(kept[-1]) < len(rows)
    check_rows(rig.forward()[0], kept)


def test_nothing_found_is_a_row_an_item() -> None:
    rig = Rig(f'type: "YoloDetectionOutput" yolo_detection_output_param {{ num_classes: 4 num_box: 3 {BIASES} '
              "confidence_threshold: 1 }", [np.zeros((2, 27, 3, 3))])
    np.testing.assert_array_equal(rig.forward()[0][0, 0], [[0, *[-1] * 6], [1, *[-1] * 6]])


@pytest.mark.filterwarnings("error")
def test_predictions_of_a_net_that_is_not_trained() -> None:
    """Boxes of infinite size overlap by no number, which is not below the threshold: the first one stays."""
    x = spread((1, 18, 2, 3), -2000, 2000)
    x[:, [2, 3, 11, 12]] = 1000  # widths and heights
    x[:, [4, 13]] = 1000  # there are objects
    rig = Rig('type: "Yolov3DetectionOutput" yolov3_detection_output_param { num_classes: 4 num_box: 2 '
              "anchors_scale: 16 mask: 2 mask: 3 mask_group_num: 1 "
              + " ".join(f"biases: {v}" for pair in ANCHORS for v in pair) + " }", [x])
    assert rig.forward()[0].shape == (1, 1, 1, 7)


GRID = np.zeros((1, 9, 2, 2))


@pytest.mark.parametrize(("text", "inputs", "said"), [
    ('"Reorg"', [GRID], "stride"), ('"Reorg" reorg_param { stride: 2 }', [GRID], "does not divide"),
    ('"Reorg" reorg_param { stride: 3 reverse: true }', [GRID[:, :8]], "does not divide"),
    ('"RegionLoss" region_loss_param { num: 1 num_class: 4 }', [GRID, np.zeros((1, 5))], "2 biases"),
    ('"RegionLoss" region_loss_param { num: 1 num_class: 3 biases: 1 biases: 1 }', [GRID, np.zeros((1, 5))],
     "8, H, W"),
    ('"RegionLoss" region_loss_param { num: 1 num_class: 4 biases: 1 biases: 1 }', [GRID[..., :1], np.zeros((1, 5))],
     "square"),
    ('"RegionLoss" region_loss_param { num: 1 num_class: 4 biases: 1 biases: 1 }', [GRID, np.zeros((1, 6))],
     "5 numbers"),
    ('"RegionLoss" region_loss_param { num: 1 num_class: 4 biases: 1 biases: 1 }',
     [GRID, np.array([[4, .5, .5, .5, .5]])], "label 4"),
    ('"Yolov3" yolov3_param { num: 1 num_class: 4 biases: 1 biases: 1 mask: 1 }', [GRID, np.zeros((1, 5))], "mask"),
    ('"YoloDetectionOutput" yolo_detection_output_param { num_box: 1 biases: 1 biases: 1 }', [GRID], "num_classes"),
    ('"Yolov3DetectionOutput" yolov3_detection_output_param { num_classes: 4 num_box: 1 mask_group_num: 2 }',
     [GRID], "as many bottoms"),
    ('"Yolov3DetectionOutput" yolov3_detection_output_param { num_classes: 4 num_box: 1 mask_group_num: 1 '
     "mask: 0 }", [GRID], "biases"),
    ('"Yolov3DetectionOutput" yolov3_detection_output_param { num_classes: 4 gaussian_box: true }', [GRID],
     "gaussian")])
def test_what_cannot_be(text: str, inputs: list[np.ndarray], said: str) -> None:
    with pytest.raises(LayerError, match=said):
        Rig(f"type: {text}", inputs).forward()
