"""Loops over regions of interest on channels-last images (N, H, W, C), by bins or by bilinear samples."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled

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
