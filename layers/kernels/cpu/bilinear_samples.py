"""Loops that sample regions of interest bilinearly from channels-last images (N, H, W, C).

The samples of a region lie on a grid: sample (a, b) at row y0 + a · dy and column x0 + b · dx. Each bin is the mean of
ny by nx samples. A sample more than ``margin`` pixels outside the image is 0; one nearer is that of the nearest pixels.
"""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled
def neighbours(at: float, length: int, margin: float) -> tuple[int, int, float]:
    """The pixels before and behind a place along one axis, and the second one's weight; (-1, -1, 0) if outside."""
    if not (-margin <= at <= length - 1 + margin):
        return -1, -1, 0.0
    at = min(max(at, 0.0), length - 1.0)
    low = int(at)
    return low, min(low + 1, length - 1), at - low


@compiled
def bilinear_means(images: np.ndarray, items: np.ndarray, grids: np.ndarray, counts: np.ndarray, margin: float,
                   pooled: np.ndarray) -> None:
    """Write the mean of each bin's samples to ``pooled``, (R, rows, columns, C).

    Args:
        images: (N, H, W, C).
        items: the item of each region, int64 (R,).
        grids: y0, dy, x0, dx of each region, (R, 4).
        counts: ny and nx of each region, int64 (R, 2).
        margin: in pixels.
        pooled: overwritten.
    """
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
