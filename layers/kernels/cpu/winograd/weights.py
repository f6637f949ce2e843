"""Filters to products and back: G w Gᵀ, and Gᵀ u G for their gradients."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.kernels.cpu.winograd.formulas import READ, TAPS, collected, filtered

N_TAPS = TAPS * TAPS


@compiled
def transform_weights(w: np.ndarray, u: np.ndarray, first: int, stop: int) -> None:
    """G w Gᵀ of the filters of some inputs.

    Args:
        w: (outputs, inputs, 9), with any strides.
        u: (36, inputs, outputs).
        first, stop: the inputs.
    """
    n = w.shape[0]
    taps, half = np.empty((N_TAPS, n), w.dtype), np.empty((READ, TAPS, n), w.dtype)
    for i in range(first, stop):
        for o in range(n):
            for t in range(N_TAPS):
                taps[t, o] = w[o, i, t]
        for j in range(TAPS):
            for k in range(n):
                (half[0, j, k], half[1, j, k], half[2, j, k], half[3, j, k], half[4, j, k],
                 half[5, j, k]) = filtered(taps[j, k], taps[TAPS + j, k], taps[2 * TAPS + j, k])
        for a in range(READ):
            m = READ * a
            for k in range(n):
                (u[m, i, k], u[m + 1, i, k], u[m + 2, i, k], u[m + 3, i, k], u[m + 4, i, k],
                 u[m + 5, i, k]) = filtered(half[a, 0, k], half[a, 1, k], half[a, 2, k])


def turned(w: np.ndarray) -> np.ndarray:
    """A view (..., inputs, outputs, 9) of weights (..., outputs, inputs, 9), each filter turned by 180 degrees: what
    carries the top's gradient to the bottom."""
    return np.swapaxes(w, -3, -2)[..., ::-1]


@compiled
def collect_gradient(u: np.ndarray, overwrite: bool, gw: np.ndarray, first: int, stop: int) -> None:
    """Gᵀ u G, added to the gradient of the filters of some inputs.

    Args:
        u: sums of products (36, inputs, outputs).
        overwrite: write instead of adding.
        gw: (outputs, inputs, 9).
        first, stop: the inputs.
    """
    n = u.shape[2]
    half, taps = np.empty((TAPS, READ, n), u.dtype), np.empty((N_TAPS, n), u.dtype)
    for i in range(first, stop):
        for b in range(READ):
            for k in range(n):
                half[0, b, k], half[1, b, k], half[2, b, k] = collected(
                    u[b, i, k], u[b + 6, i, k], u[b + 12, i, k], u[b + 18, i, k], u[b + 24, i, k], u[b + 30, i, k])
        for r in range(TAPS):
            m = TAPS * r
            for k in range(n):
                taps[m, k], taps[m + 1, k], taps[m + 2, k] = collected(
                    half[r, 0, k], half[r, 1, k], half[r, 2, k], half[r, 3, k], half[r, 4, k], half[r, 5, k])
        for o in range(n):
            for t in range(N_TAPS):
                gw[o, i, t] = taps[t, o] if overwrite else gw[o, i, t] + taps[t, o]
