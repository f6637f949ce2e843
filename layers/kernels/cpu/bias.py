"""Bias behind a product, and its gradient, on (rows, channels) matrices: the CPU's."""

from __future__ import annotations

from math import gcd

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real
from scaffe.layers.kernels.cpu.column_moments import BLOCK, WIDE
from scaffe.layers.kernels.cpu.memory import zeros
from scaffe.layers.kernels.cpu.parts import LINE, in_columns
from scaffe.layers.kernels.cpu.words import wide, words
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
    n = rows.shape[1]
    sums = zeros(n, WIDE)
    in_columns(_add_up, words(rows), zeros(n, wide(g.dtype)), sums)
    total = sums.reshape(-1, gb.size).sum(0)
    gb[...] = total if overwrite else gb + total.astype(gb.dtype)


@compiled
def _add_up(first: int, stop: int, g: np.ndarray, block: np.ndarray, sums: np.ndarray) -> None:
    for start in range(0, g.shape[0], BLOCK):
        for r in range(start, min(start + BLOCK, g.shape[0])):
            for c in range(first, stop):
                block[c] += real(g[r, c])
        for c in range(first, stop):
            sums[c] += block[c]
            block[c] = 0
