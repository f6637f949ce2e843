"""Convolution, pooling and normalisation with their gradients, place by place in float64, in Caffe's order."""

from __future__ import annotations

from itertools import product

import numpy as np

Ints = tuple[int, ...]


def convolution(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, gy: np.ndarray, stride: Ints, pad: Ints,
                dilation: Ints, group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """y, and the gradients of x, w and b for the top's gradient gy."""
    x, w, gy = (a.astype(np.float64) for a in (x, w, gy))
    margin = [(0, 0), (0, 0), *((p, p) for p in pad)]
    padded = np.pad(x, margin)
    y, gpadded, gw = np.zeros_like(gy), np.zeros_like(padded), np.zeros_like(w)
    n_in, n_out = w.shape[1], w.shape[0] // group
    for place in np.ndindex(gy.shape[2:]):
        for offset in product(*map(range, w.shape[2:])):
            at = tuple(i * s + o * d for i, s, o, d in zip(place, stride, offset, dilation))
            for g in range(group):
                ins, outs = slice(g * n_in, (g + 1) * n_in), slice(g * n_out, (g + 1) * n_out)
                here, there = (slice(None), ins, *at), (slice(None), outs, *place)
                tap = (outs, slice(None), *offset)
                y[there] += padded[here] @ w[tap].T
                gpadded[here] += gy[there] @ w[tap]
                gw[tap] += gy[there].T @ padded[here]
    if b is not None:
        y += b.reshape(-1, *[1] * len(pad))
    inside = tuple(slice(p, p + n) for p, n in zip(pad, x.shape[2:]))
    return y, gpadded[(..., *inside)], gw, gy.sum((0, *range(2, gy.ndim)))


def pooling(x: np.ndarray, gy: np.ndarray, method: str, kernel: Ints, stride: Ints, pad: Ints,
            ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, the places of the maxima (h W + w), and the gradient of x."""
    x, gy = x.astype(np.float64), gy.astype(np.float64)
    y, places, gx = np.zeros_like(gy), np.zeros_like(gy), np.zeros_like(x)
    (n_rows, n_columns), (kh, kw), (sh, sw), (ph, pw) = x.shape[2:], kernel, stride, pad
    for n, c, i, j in np.ndindex(gy.shape):
        top, left = i * sh - ph, j * sw - pw
        count = (min(top + kh, n_rows + ph) - top) * (min(left + kw, n_columns + pw) - left)
        window = [(h, v) for h in range(max(top, 0), min(top + kh, n_rows))
                  for v in range(max(left, 0), min(left + kw, n_columns))]
        if method == "AVE":
            y[n, c, i, j] = sum(x[n, c, h, v] for h, v in window) / count
            for h, v in window:
                gx[n, c, h, v] += gy[n, c, i, j] / count
        else:
            h, v = max(window, key=lambda place: x[n, c, place[0], place[1]])
            y[n, c, i, j], places[n, c, i, j] = x[n, c, h, v], h * n_columns + v
            gx[n, c, h, v] += gy[n, c, i, j]
    return y, places, gx


def lrn(x: np.ndarray, gy: np.ndarray, n_window: int, alpha: float, beta: float, k: float, within: bool,
        ) -> tuple[np.ndarray, np.ndarray]:
    """y, and the gradient of x by the sum over all pairs of elements that see one another."""
    x, gy = x.astype(np.float64), gy.astype(np.float64)
    half = n_window // 2
    rate = alpha / (n_window ** 2 if within else n_window)
    y, gx = np.zeros_like(x), np.zeros_like(x)
    for n, c, h, w in np.ndindex(x.shape):
        seen = (n, c, _around(h, half), _around(w, half)) if within else (n, _around(c, half), h, w)
        scale = k + rate * np.square(x[seen]).sum()
        here = (n, c, h, w)
        y[here] = x[here] * scale ** -beta
        gx[here] += gy[here] * scale ** -beta
        gx[seen] -= gy[here] * x[here] * beta * scale ** (-beta - 1) * 2 * rate * x[seen]
    return y, gx


def _around(i: int, half: int) -> slice:
    return slice(max(i - half, 0), i + half + 1)


def sign_words(y):
    """Bit j of word w of each 128 words is set where element 128 j + w of their 4,096 is above 0."""
    words = [0] * (-(-len(y) // 4096) * 128)
    for i, value in enumerate(y):
        block, within = divmod(i, 4096)
        words[128 * block + within % 128] |= (1 << within // 128) * bool(value > 0)
    return np.array(words, np.uint32)
