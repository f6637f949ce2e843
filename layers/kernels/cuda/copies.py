"""Copies between strided views of device memory, and of pixels, a byte each, to floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.launch import NAMES, THREADS, blocks_for, columns_grid, kernel, pack, run_flat, wide
from scaffe.layers.kernels.extents import expect_elems

Ints = tuple[int, ...]
FEW_ROWS = 8  # then a block is one row's


def as_rows(shape: Ints, strides: Ints, other_strides: Ints, itemsize: int) -> tuple[int, int, int, int] | None:
    """Two strided views of equal shape as matrices of equal shape with contiguous rows.

    Args:
        shape: of both views.
        strides, other_strides: of the first and the second view, in bytes.
        itemsize: of an element, in bytes.

    Returns:
        (rows, columns, row stride of the first view in elements, that of the second); None if they are not.
    """
    axes = sorted((a for a in zip(strides, other_strides, shape, strict=True) if a[2] != 1), reverse=True)
    merged: list[list[int]] = []
    for one, other, n in axes:
        if merged and merged[-1][0] == one * n and merged[-1][1] == other * n:
            merged[-1] = [one, other, merged[-1][2] * n]
        else:
            merged.append([one, other, n])
    if not merged or merged[-1][:2] != [itemsize, itemsize]:
        merged.append([itemsize, itemsize, 1])
    if len(merged) == 1:
        merged.insert(0, [itemsize * merged[0][2]] * 2 + [1])
    if len(merged) > 2:
        return None
    (row, other_row, n_rows), (_, _, n_columns) = merged
    return n_rows, n_columns, row // itemsize, other_row // itemsize


def copy_part(target: Any, source: Any) -> None:
    """target = source, for views of equal shape, any strides."""
    if not target.size:
        return
    rows = as_rows(target.shape, target.strides, source.strides, target.itemsize)
    if rows is None or target.dtype != source.dtype or target.dtype.name not in NAMES or target.shape != source.shape:
        target[...] = source
        return
    n_rows, n_columns, target_row, source_row = rows
    if n_rows < FEW_ROWS:
        grid, block = (blocks_for(-(-n_columns // pack(target.dtype)))[0], n_rows), (THREADS, 1)
    else:
        grid, block = columns_grid(n_rows, n_columns, target.dtype)
    kernel("elementwise", "copy_rows", target.dtype)(
        grid, block, (np.uint64(source.data.ptr), np.uint64(target.data.ptr), np.int64(source_row),
                      np.int64(target_row), np.int32(n_rows), np.int32(n_columns)))


I = np.int32  # noqa: E741 - the kernel's int


class Pixels:
    """y = (pixel - mean) · scale, mirrored where that is asked for: in float32 the bits that readers compute.

    Args:
        change: has ``mean``, float32, 1-D: a mean image (row, column, channel), or a number for each channel;
            ``row_stride`` and ``column_stride``, elements of it from one row, or column, to the next; ``scale``.
    """

    def __init__(self, change: Any) -> None:
        self._mean = device.load().asarray(change.mean)
        self._strides, self._scale = (I(change.row_stride), I(change.column_stride)), np.float32(change.scale)

    def run(self, pixels: Any, places: Any, y: Any) -> None:
        """Write y, flat, from uint8 (n, height, width, channels); places as in ``backend.Pixels``."""
        n, height, width, n_channels = pixels.shape
        expect_elems(pixels.size, y)
        expect_elems(3 * n, places)
        run_flat("pixels", "floats_of_pixels", y.dtype, pixels.size,
                 (pixels, places, self._mean, *self._strides, wide(y.dtype).type(self._scale), y, I(height), I(width),
                  I(n_channels)), per_thread=1)
