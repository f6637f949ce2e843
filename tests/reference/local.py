"""Convolution without shared weights, element by element."""

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
