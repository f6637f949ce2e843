"""Layers of Caffe's forks by plain loops in Caffe's order."""

from __future__ import annotations

from math import ceil, floor, sqrt

import numpy as np


def shuffle(x: np.ndarray, group: int) -> np.ndarray:
    """Channel i * rest + j goes to j * group + i."""
    rest = x.shape[1] // group
    y = np.zeros_like(x)
    for i in range(group):
        for j in range(rest):
            y[:, j * group + i] = x[:, i * rest + j]
    return y


def normalize(x: np.ndarray, across: bool, scales: list[float], eps: float) -> np.ndarray:
    """scale x / sqrt(sum of squares + eps) over channels (and space); x is (N, C, H, W)."""
    y = np.zeros_like(x)
    for n, c, h, w in np.ndindex(x.shape):
        run = x[n].ravel() if across else x[n, :, h, w]
        y[n, c, h, w] = scales[c % len(scales)] * x[n, c, h, w] / sqrt(sum(float(v) ** 2 for v in run) + eps)
    return y


def interp(x: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear with aligned corners; x is (N, C, H, W)."""
    y = np.zeros((*x.shape[:2], height, width))
    for h in range(height):
        for w in range(width):
            row = h * (x.shape[2] - 1) / (height - 1) if height > 1 else 0.0
            column = w * (x.shape[3] - 1) / (width - 1) if width > 1 else 0.0
            r, c = floor(row), floor(column)
            below, right = min(r + 1, x.shape[2] - 1), min(c + 1, x.shape[3] - 1)
            a, b = row - r, column - c
            y[:, :, h, w] = ((1 - a) * ((1 - b) * x[:, :, r, c] + b * x[:, :, r, right])
                             + a * ((1 - b) * x[:, :, below, c] + b * x[:, :, below, right]))
    return y


def upsample(x: np.ndarray, mask: np.ndarray, height: int, width: int) -> np.ndarray:
    """Each element to the place that the mask names."""
    y = np.zeros((*x.shape[:2], height * width))
    for n, c, h, w in np.ndindex(x.shape):
        y[n, c, int(mask[n, c, h, w])] = x[n, c, h, w]
    return y.reshape(*x.shape[:2], height, width)


def roi_pooling(x: np.ndarray, regions: np.ndarray, pooled: tuple[int, int], scale: float) -> np.ndarray:
    """Maxima of bins of regions (item, x1, y1, x2, y2)."""
    def round_away(v: float) -> int:
        return floor(v + 0.5) if v >= 0 else ceil(v - 0.5)

    y = np.zeros((len(regions), x.shape[1], *pooled))
    for r, region in enumerate(regions):
        x1, y1, x2, y2 = (round_away(v * scale) for v in region[1:])
        tall, wide = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for c in range(x.shape[1]):
            for i in range(pooled[0]):
                for j in range(pooled[1]):
                    rows = range(y1 + floor(i * tall / pooled[0]), y1 + ceil((i + 1) * tall / pooled[0]))
                    columns = range(x1 + floor(j * wide / pooled[1]), x1 + ceil((j + 1) * wide / pooled[1]))
                    seen = [x[int(region[0]), c, h, w] for h in rows for w in columns
                            if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]]
                    y[r, c, i, j] = max(seen, default=0.0)
    return y


def depthwise(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, stride: int, pad: int) -> np.ndarray:
    """Each output channel from one input channel; weights (outputs, 1, kernel, kernel)."""
    n_outputs, _, size, _ = weights.shape
    share = n_outputs // x.shape[1]
    out = [(n + 2 * pad - size) // stride + 1 for n in x.shape[2:]]
    y = np.zeros((len(x), n_outputs, *out))
    for n, k, h, w in np.ndindex(y.shape):
        y[n, k, h, w] = bias[k]
        for a in range(size):
            for b in range(size):
                row, column = h * stride - pad + a, w * stride - pad + b
                if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                    y[n, k, h, w] += weights[k, 0, a, b] * x[n, k // share, row, column]
    return y
