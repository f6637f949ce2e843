"""The layers that nearly every net has, by plain loops in Caffe's order."""

from __future__ import annotations

from itertools import product
from math import exp, log

import numpy as np

Ints = tuple[int, ...]


def convolution(x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None, stride: Ints, pad: Ints, dilation: Ints,
                group: int) -> np.ndarray:
    """(N, C, spatial...) by (outputs, C / group, kernel...)."""
    kernel, share = weights.shape[2:], len(weights) // group
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(x.shape[2:], kernel, stride, pad, dilation)]
    y = np.zeros((len(x), len(weights), *out))
    for n, k, *place in np.ndindex(y.shape):
        total = 0.0 if bias is None else float(bias[k])
        for c in range(weights.shape[1]):
            for offset in product(*map(range, kernel)):
                source = [i * s - p + o * d for i, s, p, o, d in zip(place, stride, pad, offset, dilation)]
                if all(0 <= v < m for v, m in zip(source, x.shape[2:])):
                    channel = k // share * weights.shape[1] + c
                    total += float(weights[(k, c, *offset)]) * float(x[(n, channel, *source)])
        y[(n, k, *place)] = total
    return y


def deconvolution(x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None, stride: Ints, pad: Ints,
                  dilation: Ints, group: int) -> np.ndarray:
    """Every element spreads over its window: (N, C, spatial...) by (C, outputs / group, kernel...)."""
    kernel, n_channels, per_group = weights.shape[2:], x.shape[1], weights.shape[1]
    out = [s * (n - 1) + d * (k - 1) + 1 - 2 * p for n, k, s, p, d in zip(x.shape[2:], kernel, stride, pad, dilation)]
    y = np.zeros((len(x), per_group * group, *out))
    if bias is not None:
        y += np.reshape(bias, (-1,) + (1,) * len(out))
    for n, c, *place in np.ndindex(x.shape):
        for k in range(per_group):
            for offset in product(*map(range, kernel)):
                target = [i * s - p + o * d for i, s, p, o, d in zip(place, stride, pad, offset, dilation)]
                if all(0 <= v < m for v, m in zip(target, out)):
                    output = c // (n_channels // group) * per_group + k
                    y[(n, output, *target)] += weights[(c, k, *offset)] * x[(n, c, *place)]
    return y


def inner_product(x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None, axis: int) -> np.ndarray:
    """weights (outputs, inputs) times everything from the axis on."""
    axis %= x.ndim
    y = np.zeros((*x.shape[:axis], len(weights)))
    for place in np.ndindex(x.shape[:axis]):
        row = x[place].ravel()
        for k in range(len(weights)):
            y[(*place, k)] = sum(float(w) * float(v) for w, v in zip(weights[k], row))
            y[(*place, k)] += 0.0 if bias is None else float(bias[k])
    return y


def pooling(x: np.ndarray, method: str, kernel: Ints, stride: Ints, pad: Ints, up: bool = True,
            ) -> tuple[np.ndarray, np.ndarray]:
    """Values, and (MAX) their places h * W + w; sizes rounded up or down; AVE counts the padding asked for."""
    out = []
    for n, k, s, p in zip(x.shape[2:], kernel, stride, pad):
        length = (-(-(n + 2 * p - k) // s) if up else (n + 2 * p - k) // s) + 1
        out.append(length - 1 if p and (length - 1) * s >= n + p else length)
    y, places = np.zeros((*x.shape[:2], *out)), np.zeros((*x.shape[:2], *out))
    for n, c, i, j in np.ndindex(y.shape):
        top, left = i * stride[0] - pad[0], j * stride[1] - pad[1]
        bottom, right = min(top + kernel[0], x.shape[2] + pad[0]), min(left + kernel[1], x.shape[3] + pad[1])
        seen = [(float(x[n, c, h, w]), -(h * x.shape[3] + w)) for h in range(max(top, 0), min(bottom, x.shape[2]))
                for w in range(max(left, 0), min(right, x.shape[3]))]
        value, place = max(seen)
        y[n, c, i, j] = value if method == "MAX" else sum(v for v, _ in seen) / ((bottom - top) * (right - left))
        places[n, c, i, j] = -place
    return y, places


def lrn(x: np.ndarray, size: int, alpha: float, beta: float, k: float, within: bool) -> np.ndarray:
    """x (k + alpha / n sum of squares)^-beta over size channels, or a size by size window of one channel."""
    y, half = np.zeros_like(x), size // 2
    for n, c, h, w in np.ndindex(x.shape):
        if within:
            window = x[n, c, max(h - half, 0) : h + half + 1, max(w - half, 0) : w + half + 1]
        else:
            window = x[n, max(c - half, 0) : c + half + 1, h, w]
        squares = sum(float(v) ** 2 for v in window.ravel())
        y[n, c, h, w] = x[n, c, h, w] * (k + alpha / size ** (2 if within else 1) * squares) ** -beta
    return y


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """e^x over the sum of e^x along an axis."""
    moved = np.moveaxis(x, axis, -1)
    y = np.zeros_like(moved)
    for place in np.ndindex(moved.shape[:-1]):
        powers = [exp(float(v) - float(max(moved[place]))) for v in moved[place]]
        y[place] = [p / sum(powers) for p in powers]
    return np.moveaxis(y, -1, axis)


def softmax_loss(x: np.ndarray, labels: np.ndarray, axis: int, ignored: int | None, mode: str) -> float:
    """-log of the label's softmax, summed and normalised; labels in the order of the positions."""
    rows = np.moveaxis(softmax(x, axis), axis, -1).reshape(-1, x.shape[axis])
    counted = [(row, int(k)) for row, k in zip(rows, labels.ravel()) if int(k) != ignored]
    total = -sum(log(max(float(row[k]), 1.1754943508222875e-38)) for row, k in counted)
    outer = int(np.prod(x.shape[:axis]))
    return total / max(1, {"FULL": len(rows), "VALID": len(counted), "BATCH_SIZE": outer, "NONE": 1}[mode])


def batch_norm(x: np.ndarray, eps: float) -> tuple[np.ndarray, list[float], list[float]]:
    """Each channel to mean 0 and variance 1; the means and variances (of the batch, uncorrected)."""
    y, means, variances = np.zeros_like(x), [], []
    for c in range(x.shape[1]):
        run = [float(v) for v in x[:, c].ravel()]
        mean = sum(run) / len(run)
        variance = sum((v - mean) ** 2 for v in run) / len(run)
        y[:, c] = (x[:, c] - mean) / (variance + eps) ** 0.5
        means.append(mean)
        variances.append(variance)
    return y, means, variances
