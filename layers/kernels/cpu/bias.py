"""Bias behind a product, and its gradient, on (rows, channels) matrices: the CPU's."""

from __future__ import annotations

from math import gcd

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real
from scaffe.layers.kernels.cpu.column_sums import STEPS, STREAMS, column_sums
from scaffe.layers.kernels.cpu.parts import LINE
from scaffe.layers.kernels.cpu.words import wide
from scaffe.layers.kernels.extents import expect_elems


def add_bias(y: np.ndarray, b: np.ndarray | None, relu_slope: float | None) -> None:
    """y (rows, C) += b (C,) if given, then a ReLU in place if a slope is given."""
    if b is not None:
        y += b
    if relu_slope is not None:
        from scaffe.layers.kernels.cpu.elementwise import relu_forward

        relu_forward(y.reshape(-1), y.reshape(-1), relu_slope)


def add_gradients(g: np.ndarray, gb: np.ndarray, overwrite: bool) -> None:
    """Add the sum over the rows of g (rows, C) to gb (C,), or write it if ``overwrite``.

    Raises:
        LayerError: they differ in C.
    """
    expect_elems(g.shape[1], gb)
    beside = LINE // gcd(gb.size, LINE)  # rows that fill whole lines together
    rows = g.reshape(-1, beside * gb.size) if len(g) % beside == 0 and g.flags.c_contiguous else g
    total = column_sums(_add_up, 1, rows, np.zeros(0, wide(g.dtype))).reshape(-1, gb.size).sum(0)
    gb[...] = total if overwrite else gb + total.astype(gb.dtype)


@compiled
def _add_up(first: int, stop: int, n_each: int, g: np.ndarray, like: np.ndarray, sums: np.ndarray) -> None:
    n = g.shape[1]
    block = np.zeros(n, like.dtype)
    for chunk in range(first, stop):
        top, n_rows, total = chunk * n_each, min(n_each, g.shape[0] - chunk * n_each), sums[chunk, 0]
        apart = n_rows // STREAMS
        for step in range(0, apart, STEPS):
            for r in range(top + step, top + min(step + STEPS, apart)):
                for c in range(n):
                    block[c] += ((real(g[r, c]) + real(g[r + apart, c]))
                                 + (real(g[r + 2 * apart, c]) + real(g[r + 3 * apart, c])))
            for c in range(n):
                total[c] += block[c]
                block[c] = 0
        for r in range(top + STREAMS * apart, top + n_rows):
            for c in range(n):
                total[c] += real(g[r, c])
