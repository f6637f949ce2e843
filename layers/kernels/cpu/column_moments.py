"""Mean and variance of the columns of a matrix, in one pass over memory."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real
from scaffe.layers.kernels.cpu.column_sums import BLOCK, STEPS, STREAMS, WIDE, in_chunks
from scaffe.layers.kernels.cpu.words import wide


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each column, float64 (channels,). The variance divides by the number of rows."""
    within = np.dtype(WIDE) if len(x) <= BLOCK else wide(x.dtype)
    found, n_each = in_chunks(_moments, 2, x, np.zeros(0, within))
    mean, squares = found[0]
    _join(found, n_each, len(x))
    return mean, np.maximum(squares / max(len(x), 1), 0)


@compiled
def _moments(first: int, stop: int, n_each: int, x: np.ndarray, like: np.ndarray, found: np.ndarray) -> None:
    """Each chunk's mean and sum of squared distances from it; sums of a block, in the type of ``like``, are about the
    mean of those before it.

    Source: Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance" (The American Statistician, 1983).
    """
    n = x.shape[1]
    center, sums, squares = np.zeros(n, like.dtype), np.zeros(n, like.dtype), np.zeros(n, like.dtype)
    for chunk in range(first, stop):
        top, n_rows, done = chunk * n_each, min(n_each, x.shape[0] - chunk * n_each), 0
        mean, total, apart = found[chunk, 0], found[chunk, 1], n_rows // STREAMS
        for c in range(n):
            mean[c] = real(x[top, c])
        for step in range(0, apart, STEPS):
            center[:], sums[:], squares[:] = mean, 0, 0
            n_steps = min(STEPS, apart - step)
            for r in range(top + step, top + step + n_steps):
                for c in range(n):
                    c0, c1 = real(x[r, c]) - center[c], real(x[r + apart, c]) - center[c]
                    c2, c3 = real(x[r + 2 * apart, c]) - center[c], real(x[r + 3 * apart, c]) - center[c]
                    sums[c] += (c0 + c1) + (c2 + c3)
                    squares[c] += (c0 * c0 + c1 * c1) + (c2 * c2 + c3 * c3)
            _add_block(center, sums, squares, done, STREAMS * n_steps, mean, total)
            done += STREAMS * n_steps
        for r in range(top + done, top + n_rows):
            for c in range(n):
                center[c], sums[c] = mean[c], real(x[r, c]) - mean[c]
                squares[c] = sums[c] * sums[c]
            _add_block(center, sums, squares, done, 1, mean, total)
            done += 1


@compiled(inline="always")
def _add_block(center: np.ndarray, sums: np.ndarray, squares: np.ndarray, before: int, n_rows: int, mean: np.ndarray,
               total: np.ndarray) -> None:
    """``before`` rows have this mean and total; n_rows more have these sums about the center, the mean before them."""
    each, share = 1 / n_rows, n_rows / (before + n_rows)
    for c in range(mean.size):
        step = sums[c] * each  # of the block's mean from the center
        total[c] += squares[c] - step * sums[c]
        step += center[c] - mean[c]
        total[c] += step * step * before * share
        mean[c] += step * share


@compiled
def _join(found: np.ndarray, n_each: int, n_rows: int) -> None:
    """Make the first chunk's numbers all chunks'."""
    mean, total = found[0, 0], found[0, 1]
    for chunk in range(1, found.shape[0]):
        before = chunk * n_each
        n = min(n_each, n_rows - before)
        share = n / (before + n)
        for c in range(found.shape[2]):
            step = found[chunk, 0, c] - mean[c]
            total[c] += found[chunk, 1, c] + step * step * before * share
            mean[c] += step * share
