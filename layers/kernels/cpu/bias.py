"""Bias behind a product, and its gradient, on (rows, channels) matrices: the CPU's."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.brain import real
from scaffe.layers.kernels.cpu.column_moments import BLOCK, WIDE
from scaffe.layers.kernels.cpu.parts import in_columns
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
    sums = np.zeros(gb.size, WIDE)
    in_columns(_add_up, words(g), np.zeros(gb.size, wide(g.dtype)), sums)
    gb[...] = sums if overwrite else gb + sums.astype(gb.dtype)


@compiled
def _add_up(first: int, stop: int, g: np.ndarray, block: np.ndarray, sums: np.ndarray) -> None:
    for start in range(0, g.shape[0], BLOCK):
        for r in range(start, min(start + BLOCK, g.shape[0])):
            for c in range(first, stop):
                block[c] += real(g[r, c])
        for c in range(first, stop):
            sums[c] += block[c]
            block[c] = 0
