"""Loops over boxes: overlaps, matches with ground truth, non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled

LEAST_OVERLAP = 1e-6  # a smaller one counts as 0 (SSD, bbox_util.cpp)
UNMATCHED, IGNORED = -1, -2


@compiled
def jaccard(a: np.ndarray, b: np.ndarray, edge: float) -> Any:
    """Intersection over union of two boxes. ``edge``: 1 if corners are pixels of the box, 0 if they are fractions."""
    none = a.dtype.type(0)
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if not (width >= 0 and height >= 0 and width + edge > 0 and height + edge > 0):
        return none
    shared = (width + edge) * (height + edge)
    union = area(a, edge) + area(b, edge) - shared
    return shared / union if union > 0 else none


@compiled
def area(box: np.ndarray, edge: float) -> Any:
    """Width times height; 0 if the corners are in the wrong order. ``edge`` as for ``jaccard``."""
    width, height = box[2] - box[0], box[3] - box[1]
    return (width + edge) * (height + edge) if width >= 0 and height >= 0 else box.dtype.type(0)


@compiled
def overlap_table(boxes: np.ndarray, truth: np.ndarray, table: np.ndarray) -> None:
    """Fill (n, m) with the overlaps of boxes (n, 4) with boxes (m, 4), corners as fractions."""
    for i in range(len(boxes)):
        for j in range(len(truth)):
            table[i, j] = jaccard(boxes[i], truth[j], boxes.dtype.type(0))


@compiled
def overlaps_of(box: np.ndarray, boxes: np.ndarray, edge: float) -> np.ndarray:
    """Overlaps (m,) of one box (4,) with boxes (m, 4); ``edge`` as for ``jaccard``."""
    found = np.empty(len(boxes), boxes.dtype)
    for j in range(len(boxes)):
        found[j] = jaccard(box, boxes[j], edge)
    return found


@compiled
def match(table: np.ndarray, matches: np.ndarray) -> None:
    """Give each true box the free box that overlaps it most, by a table (boxes, true boxes), the largest overlaps
    first; of equal ones the first. Matches, int64 (boxes,), get the true box's index; rows that are IGNORED stay so."""
    n, m = table.shape
    taken = np.zeros(m, np.bool_)
    for _ in range(m):
        best, row, column = LEAST_OVERLAP, -1, -1
        for i in range(n):
            if matches[i] != UNMATCHED:
                continue
            for j in range(m):
                if not taken[j] and table[i, j] > best:
                    best, row, column = table[i, j], i, j
        if row < 0:
            return
        matches[row] = column
        taken[column] = True


@compiled
def suppress(boxes: np.ndarray, order: np.ndarray, threshold: float, eta: float, least_area: float,
             kept: np.ndarray) -> int:
    """Non-maximum suppression: write to ``kept`` the indices, in ``order``, best first, of the boxes (n, 4), corners as
    fractions, of ``least_area`` or more that overlap none kept before by more than the threshold. Returns how many.

    While the threshold is above 0.5, every kept box multiplies it by ``eta`` (adaptive suppression)."""
    n_kept, none = 0, boxes.dtype.type(0)
    for place in range(len(order)):
        box = boxes[order[place]]
        keep = area(box, none) >= least_area
        for k in range(n_kept):
            if not keep:
                break
            keep = jaccard(box, boxes[kept[k]], none) <= threshold
        if keep:
            kept[n_kept] = order[place]
            n_kept += 1
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return n_kept


@compiled
def overlap_in_pixels(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes x1, y1, x2, y2."""
    width = min(a[2], b[2]) - max(a[0], b[0]) + 1
    height = min(a[3], b[3]) - max(a[1], b[1]) + 1
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    areas = (a[2] - a[0] + 1) * (a[3] - a[1] + 1) + (b[2] - b[0] + 1) * (b[3] - b[1] + 1)
    return float(shared / (areas - shared))


@compiled
def suppress_in_pixels(boxes: np.ndarray, threshold: float, most: int) -> np.ndarray:
    """Indices, int64, of the boxes (n, 4), best first, whose intersection over union with each kept one before them is
    not above the threshold, at most ``most`` of them."""
    gone = np.zeros(len(boxes), np.bool_)
    kept = np.empty(min(most, len(boxes)), np.int64)
    n_kept = 0
    for i in range(len(boxes)):
        if n_kept == len(kept):
            break
        if not gone[i]:
            kept[n_kept] = i
            n_kept += 1
            for j in range(i + 1, len(boxes)):
                if not gone[j] and overlap_in_pixels(boxes[i], boxes[j]) > threshold:
                    gone[j] = True
    return kept[:n_kept]


@compiled
def common_length(a: float, a_length: float, b: float, b_length: float) -> float:
    """The common length of two intervals given by centre and length: at least 0, or NaN."""
    right = np.minimum(a + a_length / 2, b + b_length / 2)
    return float(np.maximum(right - np.maximum(a - a_length / 2, b - b_length / 2), 0))


@compiled
def overlap_centred(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes x, y, width, height; 0 where neither has an area."""
    shared = common_length(a[0], a[2], b[0], b[2]) * common_length(a[1], a[3], b[1], b[3])
    union = a[2] * a[3] + b[2] * b[3] - shared
    return float(shared / union) if union != 0 else 0.0


@compiled
def suppress_centred(boxes: np.ndarray, threshold: float) -> np.ndarray:
    """Indices, int64, of the boxes, float64 (4, n), x, y, width and height, best first, whose intersection over union
    with each kept one before them is below the threshold; a NaN is not. Classes do not matter, as in MobileNet-YOLO."""
    n = boxes.shape[1]
    gone = np.zeros(n, np.bool_)
    kept = np.empty(n, np.int64)
    n_kept = 0
    for i in range(n):
        if not gone[i]:
            kept[n_kept] = i
            n_kept += 1
            for j in range(i + 1, n):
                if not gone[j]:
                    gone[j] = not overlap_centred(boxes[:, i], boxes[:, j]) < threshold
    return kept[:n_kept]
