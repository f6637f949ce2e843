"""Loops over boxes, for overlaps, matches with ground truth and non-maximum suppression; and over regions of interest
on channels-last images (N, H, W, C), by bins or by bilinear samples."""

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


NOWHERE = -1  # in place of the position of an empty bin's maximum


@compiled
def max_of_bins(images: np.ndarray, items: np.ndarray, tops: np.ndarray, bottoms: np.ndarray, lefts: np.ndarray,
                rights: np.ndarray, pooled: np.ndarray, places: np.ndarray) -> None:
    """Write each bin's maximum to ``pooled``, 0 for an empty one, and its pixel, row · W + column, to ``places``."""
    for r in range(pooled.shape[0]):
        image = images[items[r]]
        for i in range(pooled.shape[1]):
            for j in range(pooled.shape[2]):
                pooled[r, i, j] = 0
                places[r, i, j] = NOWHERE
                for h in range(tops[r, i], bottoms[r, i]):
                    for w in range(lefts[r, j], rights[r, j]):
                        for c in range(pooled.shape[3]):
                            if places[r, i, j, c] == NOWHERE or image[h, w, c] > pooled[r, i, j, c]:
                                pooled[r, i, j, c] = image[h, w, c]
                                places[r, i, j, c] = h * images.shape[2] + w


@compiled
def max_of_bins_back(gradient: np.ndarray, items: np.ndarray, places: np.ndarray, images: np.ndarray) -> None:
    """Add each bin's gradient to the pixel of ``images``, (N, H · W, C), that was its maximum."""
    for r in range(gradient.shape[0]):
        for i in range(gradient.shape[1]):
            for j in range(gradient.shape[2]):
                for c in range(gradient.shape[3]):
                    if places[r, i, j, c] != NOWHERE:
                        images[items[r], places[r, i, j, c], c] += gradient[r, i, j, c]


@compiled
def means_by_position(images: np.ndarray, items: np.ndarray, tops: np.ndarray, bottoms: np.ndarray, lefts: np.ndarray,
                      rights: np.ndarray, pooled: np.ndarray) -> None:
    """Write the mean of each bin: channel c of bin (i, j) from channel (c · rows + i) · columns + j of the image."""
    n_rows, n_columns = pooled.shape[1], pooled.shape[2]
    for r in range(pooled.shape[0]):
        image = images[items[r]]
        for i in range(n_rows):
            for j in range(n_columns):
                area = (bottoms[r, i] - tops[r, i]) * (rights[r, j] - lefts[r, j])
                for c in range(pooled.shape[3]):
                    total = 0.0
                    for h in range(tops[r, i], bottoms[r, i]):
                        for w in range(lefts[r, j], rights[r, j]):
                            total += image[h, w, (c * n_rows + i) * n_columns + j]
                    pooled[r, i, j, c] = total / area if area > 0 else 0.0


@compiled
def means_by_position_back(gradient: np.ndarray, items: np.ndarray, tops: np.ndarray, bottoms: np.ndarray,
                           lefts: np.ndarray, rights: np.ndarray, images: np.ndarray) -> None:
    """Add to ``images`` the gradient of ``means_by_position``."""
    n_rows, n_columns = gradient.shape[1], gradient.shape[2]
    for r in range(gradient.shape[0]):
        image = images[items[r]]
        for i in range(n_rows):
            for j in range(n_columns):
                area = (bottoms[r, i] - tops[r, i]) * (rights[r, j] - lefts[r, j])
                for c in range(gradient.shape[3]):
                    for h in range(tops[r, i], bottoms[r, i]):
                        for w in range(lefts[r, j], rights[r, j]):
                            image[h, w, (c * n_rows + i) * n_columns + j] += gradient[r, i, j, c] / area


@compiled
def neighbours(at: float, length: int, margin: float) -> tuple[int, int, float]:
    """The pixels before and after a position along one axis, and the weight of the second; (-1, -1, 0) if outside."""
    if not (-margin <= at <= length - 1 + margin):
        return -1, -1, 0.0
    at = min(max(at, 0.0), length - 1.0)
    low = int(at)
    return low, min(low + 1, length - 1), at - low


@compiled
def bilinear_means(images: np.ndarray, items: np.ndarray, grids: np.ndarray, counts: np.ndarray, margin: float,
                   pooled: np.ndarray) -> None:
    """Write the mean of each bin's samples to ``pooled``, (R, rows, columns, C), from images (N, H, W, C): each
    region's item, int64 (R,), its y0, dy, x0, dx, (R, 4), and its numbers of samples ny and nx of a bin, int64 (R, 2).
    Samples up to ``margin`` pixels outside count as on the edge."""
    for r in range(pooled.shape[0]):
        image = images[items[r]]
        y0, dy, x0, dx = grids[r]
        ny, nx = counts[r]
        for i in range(pooled.shape[1]):
            for j in range(pooled.shape[2]):
                pooled[r, i, j] = 0
                for a in range(ny):
                    up, down, v = neighbours(y0 + (i * ny + a) * dy, images.shape[1], margin)
                    for b in range(nx):
                        left, right, u = neighbours(x0 + (j * nx + b) * dx, images.shape[2], margin)
                        if up >= 0 and left >= 0:
                            for c in range(pooled.shape[3]):
                                upper = (1 - u) * image[up, left, c] + u * image[up, right, c]
                                lower = (1 - u) * image[down, left, c] + u * image[down, right, c]
                                pooled[r, i, j, c] += ((1 - v) * upper + v * lower) / (ny * nx)


@compiled
def bilinear_means_back(gradient: np.ndarray, items: np.ndarray, grids: np.ndarray, counts: np.ndarray, margin: float,
                        images: np.ndarray) -> None:
    """Add the gradient of ``bilinear_means`` to ``images``. Arguments as there."""
    for r in range(gradient.shape[0]):
        image = images[items[r]]
        y0, dy, x0, dx = grids[r]
        ny, nx = counts[r]
        for i in range(gradient.shape[1]):
            for j in range(gradient.shape[2]):
                for a in range(ny):
                    up, down, v = neighbours(y0 + (i * ny + a) * dy, images.shape[1], margin)
                    for b in range(nx):
                        left, right, u = neighbours(x0 + (j * nx + b) * dx, images.shape[2], margin)
                        if up >= 0 and left >= 0:
                            for c in range(gradient.shape[3]):
                                share = gradient[r, i, j, c] / (ny * nx)
                                image[up, left, c] += (1 - v) * (1 - u) * share
                                image[up, right, c] += (1 - v) * u * share
                                image[down, left, c] += v * (1 - u) * share
                                image[down, right, c] += v * u * share
