"""Mean and variance of the columns of a matrix, in one pass over memory."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real
from scaffe.layers.kernels.cpu.memory import zeros
from scaffe.layers.kernels.cpu.parts import in_columns
from scaffe.layers.kernels.cpu.words import wide, words

WIDE = np.float64  # sums over many rows lose digits in float32
BLOCK = 32  # rows whose sums are taken in the type of their numbers, before they join the others in float64


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each column, float64 (channels,). The variance divides by the number of rows."""
    mean, variance = zeros(x.shape[1], WIDE), zeros(x.shape[1], WIDE)
    within = np.dtype(WIDE) if len(x) <= BLOCK else wide(x.dtype)
    in_columns(_moments, words(x), mean, variance, *(zeros(x.shape[1], within) for _ in range(3)))
    return mean, variance


@compiled
def _moments(first: int, stop: int, x: np.ndarray, mean: np.ndarray, variance: np.ndarray, center: np.ndarray,
             sums: np.ndarray, squares: np.ndarray) -> None:
    """Of columns ``first`` to ``stop``, each block's about the mean of those before it.

    Source: Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance" (The American Statistician, 1983).
    """
    n_rows = x.shape[0]
    for c in range(first, stop):
        mean[c] = real(x[0, c])
    for start in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - start)
        each, share = 1 / n, n / (start + n)
        for c in range(first, stop):
            center[c], sums[c], squares[c] = mean[c], 0, 0
        for r in range(start, start + n):
            for c in range(first, stop):
                away = real(x[r, c]) - center[c]
                sums[c] += away
                squares[c] += away * away
        for c in range(first, stop):
            step = sums[c] * each  # of the block's mean from the center
            variance[c] += squares[c] - step * sums[c]
            step += center[c] - mean[c]
            variance[c] += step * step * start * share
            mean[c] += step * share
    each = 1 / n_rows
    for c in range(first, stop):
        variance[c] = max(variance[c] * each, 0.0)
