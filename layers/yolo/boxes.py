"""Boxes as centre and size, (x, y, width, height) along the first axis, in fractions of the image."""

from __future__ import annotations

import numpy as np


def intersection_over_union(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union.

    Args:
        a, b: (4, ...), whose further axes broadcast.

    Returns:
        the ratios, 0 for boxes that do not meet.
    """
    common = common_area(a, b)
    union = union_area(a, b, common)
    ratios: np.ndarray = np.divide(common, union, out=np.zeros_like(union), where=union != 0)
    return ratios


@np.errstate(over="ignore", invalid="ignore")  # boxes of nets that diverge
def common_area(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The area that boxes have in common."""
    area: np.ndarray = overlap(a[0], a[2], b[0], b[2]) * overlap(a[1], a[3], b[1], b[3])
    return area


@np.errstate(over="ignore", invalid="ignore")
def union_area(a: np.ndarray, b: np.ndarray, common: np.ndarray | float) -> np.ndarray:
    """The area that either of two boxes covers, of which they have ``common`` in common."""
    area: np.ndarray = a[2] * a[3] + b[2] * b[3] - common
    return area


@np.errstate(over="ignore", invalid="ignore")
def overlap(a: np.ndarray, a_length: np.ndarray, b: np.ndarray, b_length: np.ndarray) -> np.ndarray:
    """Length that two intervals, given by centre and length, have in common; at least 0."""
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
