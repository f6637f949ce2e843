"""Boxes as centre and size, along the first axis, in fractions of the image: IoU, GIoU, DIoU, CIoU and their slopes."""

from __future__ import annotations

import numpy as np


def intersection_over_union(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes (4, ...), whose further axes broadcast; 0 for boxes that do not meet."""
    common = common_area(a, b)
    union = union_area(a, b, common)
    ratios: np.ndarray = np.divide(common, union, out=np.zeros_like(union), where=union != 0)
    return ratios


@np.errstate(over="ignore", invalid="ignore")  # boxes of nets that diverge
def common_area(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The area of the boxes' intersection."""
    area: np.ndarray = common_length(a[0], a[2], b[0], b[2]) * common_length(a[1], a[3], b[1], b[3])
    return area


@np.errstate(over="ignore", invalid="ignore")
def union_area(a: np.ndarray, b: np.ndarray, common: np.ndarray | float) -> np.ndarray:
    """The area of the boxes' union; ``common`` is that of their intersection."""
    area: np.ndarray = a[2] * a[3] + b[2] * b[3] - common
    return area


@np.errstate(over="ignore", invalid="ignore")
def common_length(a: np.ndarray, a_length: np.ndarray, b: np.ndarray, b_length: np.ndarray) -> np.ndarray:
    """The common length, at least 0, of two intervals given by centre and length."""
    right = np.minimum(a + a_length / 2, b + b_length / 2)
    left = np.maximum(a - a_length / 2, b - b_length / 2)
    common: np.ndarray = np.maximum(right - left, 0)
    return common


def corners(boxes: np.ndarray) -> np.ndarray:
    """Left, top, right and bottom of boxes, (4, ...)."""
    half = boxes[2:] / 2
    return np.concatenate([boxes[:2] - half, boxes[:2] + half])


def read_truth(labels: np.ndarray, n_items: int) -> np.ndarray:
    """Ground truth as (items, objects, 5): class, x, y, width, height; any shape with these elements will do."""
    return labels.reshape(n_items, -1, 5)


def objects_of(truth: np.ndarray) -> np.ndarray:
    """The first rows of one item's truth (objects, 5), before one whose width is 0."""
    ends = np.flatnonzero(truth[:, 3] == 0)
    return truth[: ends[0]] if len(ends) else truth


IOU, GIOU, MSE, DIOU, CIOU = range(5)  # Yolov3Parameter.IOU_LOSS
SMALL = 1e-6
DIOU_POWER = 0.6  # the fork's; in the paper it is 1


def similarity(a: np.ndarray, b: np.ndarray, kind: int) -> float:
    """The similarity of two boxes, (4,) each; see ``similarities``."""
    return float(similarities(a, b, kind))


def similarities(a: np.ndarray, b: np.ndarray, kind: int) -> np.ndarray:
    """The similarity of boxes (4, ...), whose further axes broadcast: IoU (also for MSE), GIoU, DIoU or CIoU."""
    found = intersection_over_union(a, b)
    if kind in (IOU, MSE):
        return found
    width, height = hull(a, b)
    whole = width * height if kind == GIOU else width**2 + height**2
    if kind == GIOU:
        lost = whole - union_area(a, b, common_area(a, b))
    else:
        lost = np.square(a[:2] - b[:2]).sum(0)
    share = np.divide(lost, whole, out=np.zeros_like(found), where=whole != 0)
    if kind == DIOU:
        share = share**DIOU_POWER
    if kind == CIOU:
        shape, alpha = shape_terms(a, b, found)
        share = share + alpha * shape
    left: np.ndarray = found - share
    return left


def slopes(box: np.ndarray, truth: np.ndarray, kind: int) -> np.ndarray:
    """The direction in which a predicted box (4,) becomes more like the truth (4,), by x, y, width and height, for IOU,
    GIOU, DIOU or CIOU.

    For disjoint boxes, only the terms that GIoU, DIoU and CIoU add to IoU count. The slopes by width and height are
    twice the derivatives, as in darknet."""
    meets, of_iou, of_union, union = _iou_slopes(box, truth)
    if kind == IOU:
        return by_centre(of_iou)
    if kind == GIOU:
        width, height = hull(box, truth)
        whole = width * height
        added = (whole * of_union - union * _hull_slopes(box, truth, width, height)) / whole**2
        return by_centre(of_iou + added if meets else added)
    more = _distance_slopes(box, truth)
    if kind == CIOU:
        more[2:] += _shape_slopes(box, truth)
    return by_centre(of_iou) + more if meets else more


def by_centre(edges: np.ndarray) -> np.ndarray:
    """Slopes by x, y, width, height from those by left, top, right and bottom; sizes' not halved, as in darknet."""
    left, top, right, bottom = edges
    return np.array([left + right, top + bottom, right - left, bottom - top])


def hull(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Widths and heights of the smallest boxes around two each."""
    (left, top, right, bottom), (l2, t2, r2, b2) = corners(a), corners(b)
    return np.maximum(right, r2) - np.minimum(left, l2), np.maximum(bottom, b2) - np.minimum(top, t2)


def shape_terms(a: np.ndarray, b: np.ndarray, found: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """CIoU's difference of aspect ratios and its weight, for boxes whose IoU is ``found``."""
    difference = 4 / np.pi**2 * np.square(np.arctan(b[2] / b[3]) - np.arctan(a[2] / a[3]))
    return difference, difference / (1 - found + difference + SMALL)


def _iou_slopes(box: np.ndarray, truth: np.ndarray) -> tuple[bool, np.ndarray, np.ndarray, float]:
    """Whether the boxes meet, the slopes of IoU and of the union by the box's edges, and the union."""
    (left, top, right, bottom), of_truth = corners(box), corners(truth)
    width = min(right, of_truth[2]) - max(left, of_truth[0])
    height = min(bottom, of_truth[3]) - max(top, of_truth[1])
    common = width * height
    union = union_area(box, truth, common)
    area = np.array([-(bottom - top), -(right - left), bottom - top, right - left])
    inner = np.array([-height * (left > of_truth[0]), -width * (top > of_truth[1]),
                      height * (right < of_truth[2]), width * (bottom < of_truth[3])])
    of_union = area - inner
    of_iou = (union * inner - common * of_union) / union**2 if union > 0 else np.zeros(4)
    return bool(width > 0 and height > 0), of_iou, of_union, float(union)


def _hull_slopes(box: np.ndarray, truth: np.ndarray, width: np.ndarray, height: np.ndarray) -> np.ndarray:
    """The slopes of the hull's area by the box's edges."""
    (left, top, right, bottom), of_truth = corners(box), corners(truth)
    return np.array([-height * (left < of_truth[0]), -width * (top < of_truth[1]),
                     height * (right > of_truth[2]), width * (bottom > of_truth[3])])


def _distance_slopes(box: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """What the distance of the centres adds, by x, y, width and height, with the fork's signs."""
    mine, of_truth = corners(box), corners(truth)
    lengths = np.array(hull(box, truth))
    diagonal, square = float(np.square(lengths).sum()), float(np.square(box[:2] - truth[:2]).sum())
    low, high = mine[:2] < of_truth[:2], mine[2:] > of_truth[2:]
    by_place = high.astype(float) - low
    by_size = 0.5 * high + 0.5 * low
    out = np.empty(4)
    out[:2] = (2 * (truth[:2] - box[:2]) * diagonal - 2 * lengths * by_place * square) / diagonal**2
    out[2:] = 2 * lengths * by_size * square / diagonal**2
    return out


def _shape_slopes(box: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """What CIoU's aspect ratios add, by width and height."""
    mine, of_truth = corners(box), corners(truth)
    lengths = np.minimum(mine[2:], of_truth[2:]) - np.maximum(mine[:2], of_truth[:2])
    common = float(lengths[0] * lengths[1])  # as in the fork, of two negative lengths for boxes apart along both axes
    _, alpha = shape_terms(box, truth, float(common / union_area(box, truth, common)))
    difference = 8 / np.pi**2 * (np.arctan(truth[2] / truth[3]) - np.arctan(box[2] / box[3]))
    out: np.ndarray = alpha * difference * np.array([box[3], -box[2]])
    return out
