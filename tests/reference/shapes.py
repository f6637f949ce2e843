"""Layers that move, pick or reduce elements, by plain loops in Caffe's order."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np


def reduction(x: np.ndarray, axis: int, operation: str, coeff: float) -> np.ndarray:
    """Each run of axes axis.. to one number."""
    axis %= x.ndim
    y = np.zeros(x.shape[:axis])
    for place in np.ndindex(x.shape[:axis]):
        run = [float(v) for v in x[place].ravel()]
        y[place] = coeff * {"SUM": sum(run), "ASUM": sum(map(abs, run)), "SUMSQ": sum(v * v for v in run),
                            "MEAN": sum(run) / len(run)}[operation]
    return y


def tile(x: np.ndarray, axis: int, tiles: int) -> np.ndarray:
    """Copies along an axis."""
    axis %= x.ndim
    shape = list(x.shape)
    shape[axis] *= tiles
    y = np.zeros(shape)
    for place in np.ndindex(*shape):
        source = list(place)
        source[axis] %= x.shape[axis]
        y[place] = x[tuple(source)]
    return y


def argmax(run: list[float], top_k: int) -> list[int]:
    """Indices of the largest, largest first, the higher index first among equals."""
    return [i for _, i in sorted(((v, i) for i, v in enumerate(run)), reverse=True)[:top_k]]


def crop(x: np.ndarray, shape: tuple[int, ...], offsets: tuple[int, ...]) -> np.ndarray:
    """A window of that shape at those offsets, one for each axis."""
    y = np.zeros(shape)
    for place in np.ndindex(*shape):
        y[place] = x[tuple(i + o for i, o in zip(place, offsets))]
    return y


def im2col(x: np.ndarray, kernel: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...],
           dilation: tuple[int, ...]) -> np.ndarray:
    """(N, C * window, *positions) from (N, C, *spatial); 0 outside."""
    spatial = x.shape[2:]
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(spatial, kernel, stride, pad, dilation)]
    rows = []
    for c in range(x.shape[1]):
        for offset in product(*map(range, kernel)):
            plane = np.zeros((x.shape[0], *out))
            for position in np.ndindex(*out):
                source = [i * s - p + o * d for i, s, p, o, d in zip(position, stride, pad, offset, dilation)]
                if all(0 <= v < n for v, n in zip(source, spatial)):
                    for item in range(x.shape[0]):
                        plane[(item, *position)] = x[(item, c, *source)]
            rows.append(plane)
    return np.stack(rows, axis=1)


def mvn(x: np.ndarray, across: bool, scale: bool, eps: float) -> np.ndarray:
    """Mean 0 (and deviation 1) of each channel's, or item's, numbers; x is (N, C, H, W)."""
    y = np.zeros_like(x)
    groups = list(range(len(x))) if across else list(np.ndindex(x.shape[:2]))
    for group in groups:
        run = [float(v) for v in x[group].ravel()]
        mean = sum(run) / len(run)
        deviation = sqrt(sum((v - mean) ** 2 for v in run) / len(run))
        y[group] = np.reshape([(v - mean) / (deviation + eps if scale else 1) for v in run], x[group].shape)
    return y


def spp(x: np.ndarray, height: int, method: str) -> np.ndarray:
    """Levels of 2^l by 2^l windows side by side over padded images; AVE counts the padding asked for."""
    rows = []
    for level in range(height):
        bins = 2**level
        kernel = [-(-n // bins) for n in x.shape[2:]]
        pad = [(k * bins - n + 1) // 2 for k, n in zip(kernel, x.shape[2:])]
        out = [-(-(n + 2 * p - k) // k) + 1 for n, k, p in zip(x.shape[2:], kernel, pad)]
        out = [o - 1 if p and (o - 1) * k >= n + p else o for o, k, n, p in zip(out, kernel, x.shape[2:], pad)]
        y = np.zeros((*x.shape[:2], *out))
        for n, c, h, w in np.ndindex(y.shape):
            starts = [i * k - p for i, k, p in zip((h, w), kernel, pad)]
            ends = [min(s + k, m + p) for s, k, m, p in zip(starts, kernel, x.shape[2:], pad)]
            seen = [float(x[n, c, a, b]) for a in range(max(starts[0], 0), min(ends[0], x.shape[2]))
                    for b in range(max(starts[1], 0), min(ends[1], x.shape[3]))]
            area = (ends[0] - starts[0]) * (ends[1] - starts[1])
            y[n, c, h, w] = max(seen) if method == "MAX" else sum(seen) / area
        rows.append(y.reshape(len(x), -1))
    return np.concatenate(rows, axis=1)
