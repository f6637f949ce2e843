"""Bias behind a product, and its gradient, on (rows, channels) matrices: the CPU's."""

from __future__ import annotations

import numpy as np


def add_bias(y: np.ndarray, b: np.ndarray | None, relu_slope: float | None) -> None:
    """y (rows, C) += b (C,) if given, then a ReLU in place if a slope is given."""
    if b is not None:
        y += b
    if relu_slope is not None:
        from scaffe.layers.kernels.cpu.elementwise import relu_forward

        relu_forward(y.reshape(-1), y.reshape(-1), relu_slope)


def add_gradients(g: np.ndarray, gb: np.ndarray, overwrite: bool) -> None:
    """Add the sum over the rows of g (rows, C) to gb (C,), or write it if ``overwrite``."""
    total = g.sum(0, dtype=gb.dtype)
    gb[...] = total if overwrite else gb + total
