"""RNN and LSTM one number at a time."""

from __future__ import annotations

from math import exp, tanh

import numpy as np


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x)."""
    return 1 / (1 + exp(-x))


def affine(weights: np.ndarray, x: np.ndarray) -> list[float]:
    """weights times x."""
    return [sum(float(w) * float(v) for w, v in zip(row, x)) for row in weights]


def rnn(x: np.ndarray, cont: np.ndarray, blobs: list[np.ndarray], h0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs (T, N, D) and last states (N, D) from W_xh, b_h, W_hh, W_ho, b_o."""
    w_xh, b_h, w_hh, w_ho, b_o = blobs
    steps, streams = cont.shape
    out, last = np.zeros((steps, streams, len(b_h))), np.zeros((streams, len(b_h)))
    for n in range(streams):
        h = list(h0[n])
        for t in range(steps):
            recurrent = affine(w_hh, np.array([cont[t, n] * v for v in h]))
            h = [tanh(r + v + b) for r, v, b in zip(recurrent, affine(w_xh, x[t, n]), b_h)]
            out[t, n] = [tanh(v + b) for v, b in zip(affine(w_ho, np.array(h)), b_o)]
        last[n] = h
    return out, last


def lstm(x: np.ndarray, cont: np.ndarray, blobs: list[np.ndarray], h0: np.ndarray, c0: np.ndarray,
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs and last states h, c from W_xc, b_c, W_hc; gates i, f, o, g."""
    w_xc, b_c, w_hc = blobs
    steps, streams = cont.shape
    size = len(b_c) // 4
    out, last_h, last_c = np.zeros((steps, streams, size)), np.zeros((streams, size)), np.zeros((streams, size))
    for n in range(streams):
        h, c = list(h0[n]), list(c0[n])
        for t in range(steps):
            recurrent = affine(w_hc, np.array([cont[t, n] * v for v in h]))
            gates = [r + v + b for r, v, b in zip(recurrent, affine(w_xc, x[t, n]), b_c)]
            for d in range(size):
                i, f, o = (sigmoid(gates[k * size + d]) for k in range(3))
                c[d] = cont[t, n] * f * c[d] + i * tanh(gates[3 * size + d])
                h[d] = o * tanh(c[d])
            out[t, n] = h
        last_h[n], last_c[n] = h, c
    return out, last_h, last_c
