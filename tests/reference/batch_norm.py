"""Batch normalisation with scale, bias and ReLU behind it, by their definitions, channel by channel, in float64."""

from __future__ import annotations

import numpy as np


def forward(x: np.ndarray, mean: np.ndarray, variance: np.ndarray, eps: float, scale: np.ndarray, bias: np.ndarray,
            slope: float) -> np.ndarray:
    """y of x (rows, channels); a slope of 1 is no ReLU."""
    y = np.empty_like(x)
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = (x[r, c] - mean[c]) / (variance[c] + eps) ** 0.5 * scale[c] + bias[c]
            y[r, c] = value if value > 0 else slope * value
    return y


def backward(x: np.ndarray, gy: np.ndarray, eps: float, scale: np.ndarray, bias: np.ndarray,
             slope: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, scale and bias, the statistics being x's own: by the Jacobian of each channel."""
    gx, of_scale, of_bias = np.empty_like(x), np.empty(x.shape[1]), np.empty(x.shape[1])
    n_rows = len(x)
    for c in range(x.shape[1]):
        deviation = (x[:, c].var() + eps) ** 0.5
        xn = (x[:, c] - x[:, c].mean()) / deviation
        g = np.where(xn * scale[c] + bias[c] > 0, gy[:, c], slope * gy[:, c])
        jacobian = (np.eye(n_rows) - 1 / n_rows - np.outer(xn, xn) / n_rows) / deviation
        gx[:, c], of_scale[c], of_bias[c] = jacobian.T @ g * scale[c], g @ xn, g.sum()
    return gx, of_scale, of_bias


def backward_fixed(x: np.ndarray, gy: np.ndarray, mean: np.ndarray, variance: np.ndarray, eps: float,
                   scale: np.ndarray, bias: np.ndarray, slope: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same where the statistics are given: y is an affine map of x."""
    inverse = 1 / np.sqrt(variance + eps)
    xn = (x - mean) * inverse
    g = np.where(xn * scale + bias > 0, gy, slope * gy)
    return g * inverse * scale, (g * xn).sum(0), g.sum(0)
