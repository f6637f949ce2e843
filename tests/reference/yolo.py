"""Naive formulas of YOLO's layers, number by number (darknet's, as in eric612/MobileNet-YOLO)."""

from __future__ import annotations

from collections.abc import Callable
from math import atan, exp, log, pi

import numpy as np

Box = tuple[float, float, float, float]  # x, y, width, height


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def edges(box: Box) -> Box:
    """left, top, right, bottom"""
    x, y, w, h = box
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


def iou(a: Box, b: Box) -> float:
    (l1, t1, r1, b1), (l2, t2, r2, b2) = edges(a), edges(b)
    w, h = min(r1, r2) - max(l1, l2), min(b1, b2) - max(t1, t2)
    common = w * h if w > 0 and h > 0 else 0.0
    return common / (a[2] * a[3] + b[2] * b[3] - common)


def alike(a: Box, b: Box, kind: str) -> float:
    """IoU, or less by what GIoU, DIoU and CIoU take off."""
    if kind in ("IOU", "MSE"):
        return iou(a, b)
    (l1, t1, r1, b1), (l2, t2, r2, b2) = edges(a), edges(b)
    w, h = max(r1, r2) - min(l1, l2), max(b1, b2) - min(t1, t2)
    found = iou(a, b)
    if kind == "GIOU":
        both = a[2] * a[3] + b[2] * b[3]
        union = both - found * both / (1 + found)
        return found - (w * h - union) / (w * h)
    distance = ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) / (w**2 + h**2)
    if kind == "DIOU":
        return found - distance**0.6
    shape = 4 / pi**2 * (atan(b[2] / b[3]) - atan(a[2] / a[3])) ** 2
    return found - (distance + shape / (1 - found + shape + 1e-6) * shape)


def reorg(x: np.ndarray, stride: int, reverse: bool) -> np.ndarray:
    """Element by element over flat memory, darknet's indices."""
    n, c, h, w = x.shape
    out = np.zeros(x.size)
    depth, flat = c // stride**2, x.ravel()
    for place in range(x.size):
        rest, i = divmod(place, w)
        rest, j = divmod(rest, h)
        b, k = divmod(rest, c)
        offset, k2 = divmod(k, depth)
        other = ((b * depth + k2) * h * stride + j * stride + offset // stride) * w * stride
        other += i * stride + offset % stride
        if reverse:
            out[other] = flat[place]
        else:
            out[place] = flat[other]
    shape = (n, depth, h * stride, w * stride) if reverse else (n, c * stride**2, h // stride, w // stride)
    return out.reshape(shape)


def region_loss(x: np.ndarray, truth: np.ndarray, p: dict) -> tuple[float, np.ndarray]:
    """YOLOv2's differences and their sum of squares over N.

    Args:
        x: (N, num, 5 + classes, S, S).
        truth: (N, objects, 5).
        p: the options' names and values; ``biases`` as pairs.
    """
    n_items, num, depth, side, _ = x.shape
    d = np.zeros_like(x)
    for b in range(n_items):
        for n in range(num):
            for j in range(side):
                for i in range(side):
                    s = sigmoid(x[b, n, 4, j, i])
                    box = region_box(x[b, n, :, j, i], p["biases"][n], i, j, side)
                    best = 0.0
                    for t in truth[b]:
                        if t[1] == 0:
                            break
                        best = max(best, iou(box, tuple(t[1:])))
                    d[b, n, 4, j, i] = 0 if best > p["thresh"] else p["noobject_scale"] * s * s * (1 - s)
        for t in truth[b]:
            if t[3] == 0:
                break
            i, j = int(t[1] * side), int(t[2] * side)
            best, at = 0.0, 0
            for n in range(num):
                w, h = (v / side for v in p["biases"][n]) if p["bias_match"] else \
                    region_box(x[b, n, :, j, i], p["biases"][n], i, j, side)[2:]
                found = iou((0, 0, w, h), (0, 0, t[3], t[4]))
                if found > best:
                    best, at = found, n
            scores, out = x[b, at, :, j, i], d[b, at, :, j, i]
            scale = p["coord_scale"] * (1 if p["rescore"] else 2 - t[3] * t[4])
            for k, wanted in ((0, t[1] * side - i), (1, t[2] * side - j)):
                s = sigmoid(scores[k])
                out[k] = -scale * (wanted - s) * s * (1 - s)
            for k in (2, 3):
                out[k] = -scale * (log(t[k + 1] * side / p["biases"][at][k - 2]) - scores[k])
            found = iou(region_box(scores, p["biases"][at], i, j, side), tuple(t[1:]))
            s = sigmoid(scores[4])
            out[4] = -p["object_scale"] * ((found if p["rescore"] else 1) - s) * s * (1 - s)
            total = sum(exp(v) for v in scores[5:])
            for c in range(depth - 5):
                out[5 + c] = -p["class_scale"] * ((c == int(t[0])) - exp(scores[5 + c]) / total)
    return float((d**2).sum() / n_items), d


def region_box(scores: np.ndarray, anchor: tuple[float, float], i: int, j: int, side: int) -> Box:
    return ((i + sigmoid(scores[0])) / side, (j + sigmoid(scores[1])) / side, exp(scores[2]) * anchor[0] / side,
            exp(scores[3]) * anchor[1] / side)


def v3_box(scores: np.ndarray, anchor: tuple[float, float], i: int, j: int, grid: tuple[int, int], scale: int) -> Box:
    h, w = grid
    return ((i + sigmoid(scores[0])) / w, (j + sigmoid(scores[1])) / h, exp(scores[2]) * anchor[0] / (w * scale),
            exp(scores[3]) * anchor[1] / (h * scale))


def yolov3(x: np.ndarray, truth: np.ndarray, p: dict) -> tuple[float, np.ndarray]:
    """YOLOv3's loss and differences with squared differences of boxes; arguments as for ``region_loss``."""
    n_items, num, depth, h, w = x.shape
    d, scale, kind = np.zeros_like(x), p["anchors_scale"], p["iou_loss"]
    for b in range(n_items):
        for n, j, i in np.ndindex(num, h, w):
            box = v3_box(x[b, n, :, j, i], p["biases"][p["mask"][n]], i, j, (h, w), scale)
            best = 0.0
            for t in truth[b]:
                if t[1] == 0:
                    break
                best = max(best, alike(box, tuple(t[1:]), kind))
            d[b, n, 4, j, i] = 0 if best > p["thresh"] else sigmoid(x[b, n, 4, j, i])
        for t in truth[b]:
            if t[3] == 0:
                break
            i, j = int(t[1] * w), int(t[2] * h)
            found = [alike((0, 0, a / (w * scale), c / (h * scale)), (0, 0, t[3], t[4]), kind) for a, c in p["biases"]]
            best, best_n = 0.0, -1
            for n, value in enumerate(found):
                if value > best:
                    best, best_n = value, n
            chosen = []
            if best_n in p["mask"]:
                best_n = p["mask"].index(best_n)  # darknet_yolo's own mix of a place and a number
                chosen.append(best_n)
            chosen += [p["mask"].index(n) for n in range(len(found))
                       if n in p["mask"] and n != best_n and p["iou_thresh"] < 1 and found[n] > p["iou_thresh"]]
            for n in chosen:
                v3_object(x[b, n, :, j, i], d[b, n, :, j, i], t, (i, j, w, h), p["biases"][p["mask"][n]], p)
    loss = float((d**2).sum() / n_items)
    if p["use_logic_gradient"]:
        for k in [0, 1, *range(4, depth)]:
            s = 1 / (1 + np.exp(-x[:, :, k]))
            d[:, :, k] *= s * (1 - s)
    return loss, d


def v3_object(scores: np.ndarray, out: np.ndarray, t: np.ndarray, at: tuple, anchor: tuple[float, float],
              p: dict) -> None:
    """The differences of a box that is to predict the object t."""
    i, j, w, h = at
    scale = p["coord_scale"] * (2 - t[3] * t[4])
    out[0] = -scale * (t[1] * w - i - sigmoid(scores[0]))
    out[1] = -scale * (t[2] * h - j - sigmoid(scores[1]))
    out[2] = -scale * (log(t[3] * w * p["anchors_scale"] / anchor[0]) - scores[2])
    out[3] = -scale * (log(t[4] * h * p["anchors_scale"] / anchor[1]) - scores[3])
    out[4] = -(1 - sigmoid(scores[4])) * (p["object_scale"] if p["use_logic_gradient"] else 1)
    label, eps = int(t[0]), p["label_smooth_eps"]
    if out[5 + label] != 0:
        out[5 + label] = -p["class_scale"] * (1 - eps + eps / 2 - sigmoid(scores[5 + label]))
        return
    if p["use_focal_loss"]:
        pt = sigmoid(scores[5 + label]) + 1e-15
        for c in range(len(out) - 5):
            out[5 + c] = -p["class_scale"] * ((c == label) - sigmoid(scores[5 + c]))
            out[5 + c] *= -0.5 * (1 - pt) * (2 * pt * log(pt) + pt - 1)
        return
    for c in range(len(out) - 5):
        out[5 + c] = -p["class_scale"] * ((c == label) * (1 - eps) + eps / 2 - sigmoid(scores[5 + c]))


def suppress(rows: list[tuple], threshold: float) -> list[tuple]:
    """Of (score, label, box), best first, those that no better kept one overlaps by the threshold."""
    kept: list[tuple] = []
    for row in sorted(rows, key=lambda r: -r[0]):
        if all(iou(row[2], other[2]) < threshold for other in kept):
            kept.append(row)
    return kept


def derivative(f: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Two-sided differences of a function of (x, y, width, height)."""
    return np.array([(f(at + step * e) - f(at - step * e)) / (2 * step) for e in np.eye(4)])


def fork_slopes(box: np.ndarray, t: np.ndarray, kind: str) -> np.ndarray:
    """The slopes of DIoU and CIoU in MobileNet-YOLO's fork (dx_box_iou), by differences of the papers' formulas.

    The paper's penalty is d²/c², with the centres' distance d and the diagonal c of the box around both, and alpha v
    with alpha held fast (Zheng et al. 2020, equations 7 to 12). The fork's slopes are the derivatives of minus the
    penalty but for three things: by x and y, what comes through c has the other sign; IoU's by width and height count
    twice; and v's leave out 1 / (width² + height²), as the paper says to.
    """
    def share(centre: np.ndarray, around: np.ndarray) -> float:
        c = [max(around[k] + around[k + 2] / 2, t[k] + t[k + 2] / 2) - min(around[k] - around[k + 2] / 2,
                                                                        t[k] - t[k + 2] / 2) for k in (0, 1)]
        return float(((centre[0] - t[0]) ** 2 + (centre[1] - t[1]) ** 2) / (c[0] ** 2 + c[1] ** 2))

    def aspects(b: np.ndarray) -> float:
        return float(4 / np.pi**2 * (np.arctan(t[2] / t[3]) - np.arctan(b[2] / b[3])) ** 2)

    sides = [min(box[k] + box[k + 2] / 2, t[k] + t[k + 2] / 2) - max(box[k] - box[k + 2] / 2, t[k] - t[k + 2] / 2)
             for k in (0, 1)]
    through_c = derivative(lambda b: share(box, b), box)
    out = through_c * [1, 1, -1, -1] - derivative(lambda b: share(b, box), box)
    if kind == "CIOU":
        common = sides[0] * sides[1]
        found = common / (box[2] * box[3] + t[2] * t[3] - common)
        alpha = aspects(box) / (1 - found + aspects(box) + 1e-6)
        out -= alpha * derivative(aspects, box) * (box[2] ** 2 + box[3] ** 2)
    if min(sides) > 0:
        out += derivative(lambda b: alike(tuple(b), tuple(t), "IOU"), box) * [1, 1, 2, 2]
    return out
