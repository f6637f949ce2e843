"""Cascade R-CNN's layers, box by box."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from tests.reference.rcnn import overlap

SPREAD = ((0, 0.1, 0, 0), (0.1, 0.1, 0.2, 0.2))  # means and deviations


def decoded(region: list[float], delta: np.ndarray, means: tuple = SPREAD[0], stds: tuple = SPREAD[1]) -> list[float]:
    """A region x1, y1, x2, y2 moved by a prediction."""
    x1, y1, x2, y2 = region
    dx, dy, dw, dh = (d * s + m for d, m, s in zip(delta, means, stds, strict=True))
    wide, tall = (x2 - x1 + 1) * exp(dw), (y2 - y1 + 1) * exp(dh)
    cx, cy = (x1 + x2) / 2 + dx * (x2 - x1 + 1), (y1 + y2) / 2 + dy * (y2 - y1 + 1)
    return [cx - (wide - 1) / 2, cy - (tall - 1) / 2, cx + (wide - 1) / 2, cy + (tall - 1) / 2]


def scale(region: np.ndarray) -> float:
    """The root of a region's area."""
    x1, y1, x2, y2 = region[1:]
    return 0 if x2 < x1 or y2 < y1 else sqrt((x2 - x1 + 1) * (y2 - y1 + 1))


def boxes_of_item(maps: list, groups: list, item: int, shift: float, factor: float, least: float, threshold: float):
    """(score, box) of every field of an item that counts.

    Args:
        maps: (probabilities, predictions) of each group.
        groups: (list of (width, height), stride) of each group.
        shift, factor: bounds of the predictions.
    """
    found = []
    for (scores, deltas), (fields, stride) in zip(maps, groups, strict=True):
        rows, columns = scores.shape[2:]
        for k, (wide, tall) in enumerate(fields):
            row = item * len(fields) + k
            for y in range(rows):
                for x in range(columns):
                    d = [v * s + m for v, m, s in zip(deltas[row, :, y, x], *SPREAD, strict=True)]
                    dx, dy = (max(-shift, min(shift, v)) for v in d[:2])
                    dw, dh = (max(-log(factor), min(log(factor), v)) for v in d[2:])
                    w, h = wide * exp(dw), tall * exp(dh)
                    left, upper = (x + 0.5) * stride + dx * wide - w / 2, (y + 0.5) * stride + dy * tall - h / 2
                    box = [max(0, left), max(0, upper), min(columns * stride, left + w - 1),
                           min(rows * stride, upper + h - 1)]
                    score = 1 - scores[row, 0, y, x]
                    if score >= threshold and box[2] - box[0] + 1 >= least and box[3] - box[1] + 1 >= least:
                        found.append((score, box))
    return found


def kept(found: list, kind: str, most_before: int, most: int, threshold: float) -> list:
    """Those of the best that no better one covers."""
    result: list = []
    for score, box in sorted(found, key=lambda one: -one[0])[:most_before]:
        if all(covered(other, box, kind) <= threshold for _, other in result):
            result.append((score, box))
    return result[:most]


def covered(better: list[float], box: list[float], kind: str) -> float:
    """The overlap of two boxes, from intersection over union: shared = iou (a + b) / (1 + iou)."""
    if min(better[2], box[2]) < max(better[0], box[0]) or min(better[3], box[3]) <= max(better[1], box[1]):
        return 0
    iou = overlap(better, box)
    a, b = ((c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (better, box))
    shared = iou * (a + b) / (1 + iou)
    return {"IOU": iou, "IOMU": shared / min(a, b), "IOFU": shared / a}[kind]
