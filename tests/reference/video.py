"""Naive convolution and pooling of clips (facebookarchive/C3D), loop by loop."""

from __future__ import annotations

from itertools import product
from math import ceil

import numpy as np


def convolution3d(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, stride: tuple[int, int, int],
                  pad: tuple[int, int, int]) -> np.ndarray:
    """A sum over channels and window for each output; (N, C, L, H, W) by (outputs, C, l, h, w)."""
    wide = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in pad]])
    out = [(n - k) // s + 1 for n, k, s in zip(wide.shape[2:], weights.shape[2:], stride, strict=True)]
    y = np.zeros((x.shape[0], weights.shape[0], *out))
    for n, o, *at in product(*map(range, y.shape)):
        window = tuple(slice(a * s, a * s + k) for a, s, k in zip(at, stride, weights.shape[2:], strict=True))
        y[(n, o, *at)] = (wide[(n, slice(None), *window)] * weights[o]).sum() + bias[o]
    return y


def pooling3d(x: np.ndarray, is_max: bool, kernel: tuple[int, int, int], stride: tuple[int, int, int],
              pad: tuple[int, int, int]) -> np.ndarray:
    """The largest or the mean of each window; the mean counts the padding, but not what lies beyond it."""
    out = [ceil((n + 2 * p - k) / s) + 1 for n, k, s, p in zip(x.shape[2:], kernel, stride, pad, strict=True)]
    y = np.zeros((*x.shape[:2], *out))
    for n, c, *at in product(*map(range, y.shape)):
        starts = [a * s - p for a, s, p in zip(at, stride, pad, strict=True)]
        ends = [min(a + k, m + p) for a, k, m, p in zip(starts, kernel, x.shape[2:], pad, strict=True)]
        size = np.prod([b - a for a, b in zip(starts, ends, strict=True)])
        window = tuple(slice(max(a, 0), min(b, m)) for a, b, m in zip(starts, ends, x.shape[2:], strict=True))
        seen = x[(n, c, *window)]
        y[(n, c, *at)] = seen.max() if is_max else seen.sum() / size
    return y
