"""Layers of locally connected nets, element by element: convolution without shared weights, contrast normalisation."""

import numpy as np


def local_convolution(x, w, b, stride, pad, dilation):
    """y of x (N, C, H, W) with weights (H', W', O, C, kh, kw) and bias (H', W', O); pairs are (height, width)."""
    padded = np.pad(x, [(0, 0), (0, 0), (pad[0], pad[0]), (pad[1], pad[1])])
    high, wide, n_outputs, n_channels, kh, kw = w.shape
    y = np.zeros((len(x), n_outputs, high, wide))
    for n, o, i, j in np.ndindex(*y.shape):
        y[n, o, i, j] = b[i, j, o]
        for c, di, dj in np.ndindex(n_channels, kh, kw):
            y[n, o, i, j] += w[i, j, o, c, di, dj] * padded[n, c, i * stride[0] + di * dilation[0],
                                                            j * stride[1] + dj * dilation[1]]
    return y


def local_contrast(x, local_size, sigma, least, across):
    """y of x (N, C, H, W): v / max(deviation, least), v = x less the mean, both by a Gaussian inside the image."""
    v, y = np.zeros(x.shape), np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        v[at] = x[at] - _mean_around(x, at, local_size // 2, sigma, across)
    for at in np.ndindex(*x.shape):
        y[at] = v[at] / max(np.sqrt(_mean_around(v * v, at, local_size // 2, sigma, across)), least)
    return y


def _mean_around(x, at, half, sigma, across):
    n, c, h, w = at
    total = weights = 0.0
    for i in range(max(h - half, 0), min(h + half + 1, x.shape[2])):
        for j in range(max(w - half, 0), min(w + half + 1, x.shape[3])):
            for channel in range(x.shape[1]) if across else [c]:
                weight = np.exp(-((i - h) ** 2 + (j - w) ** 2) / (2 * sigma**2))
                total, weights = total + weight * x[n, channel, i, j], weights + weight
    return total / weights
