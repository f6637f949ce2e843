"""The R-CNN family's layers by plain loops in Caffe's order. Regions are (item, x1, y1, x2, y2)."""

from __future__ import annotations

from math import ceil, exp, floor, sqrt

import numpy as np


def round_away(v: float) -> int:
    """To the nearest whole number, halves away from 0."""
    return floor(v + 0.5) if v >= 0 else ceil(v - 0.5)


def smooth_l1(a: np.ndarray, b: np.ndarray, inside: np.ndarray, outside: np.ndarray, sigma: float) -> np.ndarray:
    """The loss of each element."""
    losses = np.zeros(a.size)
    for i, (p, t, u, v) in enumerate(zip(a.flat, b.flat, inside.flat, outside.flat, strict=True)):
        x = abs(u * (p - t))
        losses[i] = v * (0.5 * (sigma * x) ** 2 if x < 1 / sigma**2 else x - 0.5 / sigma**2)
    return losses.reshape(a.shape)


def ps_roi_pooling(x: np.ndarray, regions: np.ndarray, outputs: int, group: int, scale: float) -> np.ndarray:
    """Means of bins, each from its own map."""
    y = np.zeros((len(regions), outputs, group, group))
    for r, region in enumerate(regions):
        x1, y1 = round_away(region[1]) * scale, round_away(region[2]) * scale
        wide = max((round_away(region[3]) + 1) * scale - x1, 0.1) / group
        tall = max((round_away(region[4]) + 1) * scale - y1, 0.1) / group
        for c in range(outputs):
            for i in range(group):
                for j in range(group):
                    rows = range(floor(i * tall + y1), ceil((i + 1) * tall + y1))
                    columns = range(floor(j * wide + x1), ceil((j + 1) * wide + x1))
                    seen = [x[int(region[0]), (c * group + i) * group + j, h, w] for h in rows for w in columns
                            if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]]
                    y[r, c, i, j] = sum(seen) / len(seen) if seen else 0
    return y


def bilinear(image: np.ndarray, row: float, column: float, margin: float) -> np.ndarray:
    """The value of each channel of (C, H, W) between pixels; 0 more than ``margin`` outside."""
    _, height, width = image.shape
    if row < -margin or row > height - 1 + margin or column < -margin or column > width - 1 + margin:
        return np.zeros(len(image))
    row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
    value = np.zeros(len(image))
    for h in range(height):
        for w in range(width):
            value += max(0, 1 - abs(row - h)) * max(0, 1 - abs(column - w)) * image[:, h, w]
    return value


def roi_align(x: np.ndarray, regions: np.ndarray, pooled: tuple[int, int], scale: float, ratio: int) -> np.ndarray:
    """Means of samples of bins (Detectron)."""
    y = np.zeros((len(regions), x.shape[1], *pooled))
    for r, region in enumerate(regions):
        x1, y1, x2, y2 = (v * scale for v in region[1:])
        tall, wide = max(y2 - y1, 1) / pooled[0], max(x2 - x1, 1) / pooled[1]
        rows, columns = (ratio, ratio) if ratio > 0 else (ceil(tall), ceil(wide))
        for i in range(pooled[0]):
            for j in range(pooled[1]):
                places = [(y1 + tall * (i + (a + 0.5) / rows), x1 + wide * (j + (b + 0.5) / columns))
                          for a in range(rows) for b in range(columns)]
                samples = [bilinear(x[int(region[0])], row, column, 1) for row, column in places]
                y[r, :, i, j] = sum(samples) / len(samples)
    return y


def roi_align_corners(x: np.ndarray, regions: np.ndarray, pooled: tuple[int, int], scale: float,
                      pad: float) -> np.ndarray:
    """Samples at the corners of bins (Cascade R-CNN)."""
    y = np.zeros((len(regions), x.shape[1], pooled[0] + 1, pooled[1] + 1))
    for r, (item, x1, y1, x2, y2) in enumerate(regions):
        more_x, more_y = (x2 - x1 + 1) * pad, (y2 - y1 + 1) * pad
        left, top = (x1 - more_x) * scale - 0.5, (y1 - more_y) * scale - 0.5
        wide, tall = (x2 + more_x) * scale - 0.5 - left, (y2 + more_y) * scale - 0.5 - top
        for i in range(pooled[0] + 1):
            for j in range(pooled[1] + 1):
                if wide > 0 and tall > 0:
                    y[r, :, i, j] = bilinear(x[int(item)], top + i * tall / pooled[0], left + j * wide / pooled[1], 0.5)
    return y


def anchors(base: int, ratios: list[float], scales: list[float]) -> list[list[float]]:
    """py-faster-rcnn's, x1, y1, x2, y2."""
    found = []
    for ratio in ratios:
        width = floor(sqrt(base * base / ratio) + 0.5)
        height = floor(width * ratio + 0.5)
        for scale in scales:
            w, h, centre = width * scale, height * scale, (base - 1) / 2
            found.append([centre - (w - 1) / 2, centre - (h - 1) / 2, centre + (w - 1) / 2, centre + (h - 1) / 2])
    return found


def overlap(a: list[float], b: list[float]) -> float:
    """Intersection over union; a box from 0 to 1 is 2 pixels wide."""
    w, h = min(a[2], b[2]) - max(a[0], b[0]) + 1, min(a[3], b[3]) - max(a[1], b[1]) + 1
    if w <= 0 or h <= 0:
        return 0
    areas = [(c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)]
    return w * h / (sum(areas) - w * h)


def proposals(scores: np.ndarray, deltas: np.ndarray, info: list[float], base: list[list[float]], stride: int,
              least: float, n_before: int, n_after: int, threshold: float) -> list[tuple[float, list[float]]]:
    """(score, box) of each region; scores (2 A, H, W), deltas (4 A, H, W), info: height, width and their scales."""
    found = []
    for h in range(scores.shape[1]):
        for w in range(scores.shape[2]):
            for k, anchor in enumerate(base):
                x1, y1, x2, y2 = (anchor[0] + w * stride, anchor[1] + h * stride, anchor[2] + w * stride,
                                  anchor[3] + h * stride)
                wide, tall = x2 - x1 + 1, y2 - y1 + 1
                dx, dy, dw, dh = deltas[4 * k : 4 * k + 4, h, w]
                cx, cy = x1 + wide / 2 + dx * wide, y1 + tall / 2 + dy * tall
                wide, tall = exp(dw) * wide, exp(dh) * tall
                box = [max(0, min(v, limit - 1)) for v, limit in zip(
                    (cx - wide / 2, cy - tall / 2, cx + wide / 2, cy + tall / 2), [info[1], info[0]] * 2, strict=True)]
                large = box[2] - box[0] + 1 >= least * info[3] and box[3] - box[1] + 1 >= least * info[2]
                found.append((scores[len(base) + k, h, w] if large else 0.0, box))
    kept: list[tuple[float, list[float]]] = []
    for score, box in sorted(found, key=lambda one: -one[0])[:n_before]:
        if len(kept) < n_after and all(overlap(box, other) <= threshold for _, other in kept):
            kept.append((score, box))
    return kept


def hardest(losses: list[float], items: list[int], n_per_item: int) -> list[bool]:
    """Whether fewer than n_per_item regions of the same item cost more, or as much and come before."""
    return [sum(1 for j in range(len(losses)) if items[j] == items[i] and (
        losses[j] > losses[i] or losses[j] == losses[i] and j < i)) < n_per_item for i in range(len(losses))]
