"""Non-maximum suppression: of boxes in pixels, both corners included (Faster R-CNN, Ren et al. 2015, section 3.3), and
of boxes by centre and size (YOLO)."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled
def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes x1, y1, x2, y2."""
    width = min(a[2], b[2]) - max(a[0], b[0]) + 1
    height = min(a[3], b[3]) - max(a[1], b[1]) + 1
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    areas = (a[2] - a[0] + 1) * (a[3] - a[1] + 1) + (b[2] - b[0] + 1) * (b[3] - b[1] + 1)
    return float(shared / (areas - shared))


@compiled
def suppress(boxes: np.ndarray, threshold: float, most: int) -> np.ndarray:
    """Indices of the boxes that overlap no kept one before them by more than the threshold, at most ``most`` of them.

    Args:
        boxes: (n, 4), the best first.
        threshold: intersection over union.
        most: how many to keep.

    Returns:
        int64, ascending.
    """
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
                if not gone[j] and overlap(boxes[i], boxes[j]) > threshold:
                    gone[j] = True
    return kept[:n_kept]


@compiled
def common_length(a: float, a_length: float, b: float, b_length: float) -> float:
    """Length that two intervals, given by centre and length, have in common; at least 0, or no number."""
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
    """Indices of the boxes whose overlap with each kept one before them is below the threshold.

    Args:
        boxes: float64 (4, n), x, y, width and height, the best first; classes do not matter, as in MobileNet-YOLO.
        threshold: intersection over union. One that is no number is not below it.

    Returns:
        int64, ascending.
    """
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
