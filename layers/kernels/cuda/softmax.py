"""Softmax over the last axis of rows on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels.cuda.launch import kernel, most_blocks
from scaffe.layers.kernels.extents import expect_shape

WARP, WARPS = 32, 8
WIDE_ROW = 2048  # classes from which a row is a block's work instead of a warp's


def rows_grid(n_rows: int, n_classes: int) -> tuple[tuple[int], tuple[int, int]]:
    """Grid and block for kernels whose block takes rows, as many as its y."""
    block = (WARP * WARPS, 1) if n_classes >= WIDE_ROW else (WARP, WARPS)
    return (max(min(-(-n_rows // block[1]), 4 * most_blocks()), 1),), block


def run_rows(name: str, x: Any, arguments: tuple[Any, ...]) -> None:
    """Launch a kernel of ``softmax.cu`` over (rows, classes)."""
    if x.size:
        counts = (np.int64(x.shape[0]), np.int32(x.shape[1]))
        kernel("softmax", name, x.dtype)(*rows_grid(*x.shape), (*arguments, *counts))


def softmax_rows(x: Any, y: Any) -> None:
    """y[r] = exp(x[r] - max) / sum, for each row of (rows, classes). y may be x."""
    expect_shape(x.shape, y)
    run_rows("softmax_rows", x, (x, y))


def softmax_rows_back(y: Any, gy: Any, gx: Any) -> None:
    """Gradient of softmax: gx = y (gy - sum(gy y)) for each row. gx may be gy."""
    expect_shape(y.shape, gy, gx)
    run_rows("softmax_rows_back", y, (y, gy, gx))
