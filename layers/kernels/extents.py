"""Checks array sizes before kernels run, as these get addresses and would read or write outside a short array.

An array of the wrong size belongs to a blob that was reshaped after the layer's ``reshape``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.errors import LayerError


def expect_elems(n_elems: int, *arrays: Any) -> None:
    """Raise LayerError unless each array has n_elems elements; None is skipped."""
    for array in arrays:
        if array is not None and array.size != n_elems:
            raise mismatch(n_elems, array.size)


def expect_shape(shape: tuple[int, ...], *arrays: Any) -> None:
    """Raise LayerError unless each array has that shape; None is skipped."""
    for array in arrays:
        if array is not None and array.shape != shape:
            raise mismatch(shape, array.shape)


def mismatch(expected: int | tuple[int, ...], got: int | tuple[int, ...]) -> LayerError:
    """The error for an array whose number of elements, or shape, is not what the kernel was built for."""
    what = "elements" if isinstance(expected, int) else "as rows and columns"
    return LayerError(f"expected a blob of {expected} {what}, got {got}: it was reshaped after the layer was")


LANES, BITS = 128, 32
TOGETHER = LANES * BITS
WORD = np.dtype(np.uint32)


def n_words(n_elems: int) -> int:
    """The number of words in the sign mask of ``n_elems`` elements."""
    return -(-n_elems // TOGETHER) * LANES


def expect_words(n_elems: int, mask: Any) -> None:
    """Raise LayerError unless ``mask`` has the words for ``n_elems`` elements."""
    if mask.size != n_words(n_elems):
        raise mismatch(n_words(n_elems), mask.size)


BLOCK_BYTES = 32 << 20
"""Size of a block of rows. In smaller ones, copying the factors costs more: for the gradient of CaffeNet's fc6, 7 to
10 % with blocks of 16 MB, 2 to 5 % with these."""
ROW_UNIT = 16  # a block's rows are a multiple of it, so that each block begins at a cache line


def row_blocks(n_rows: int, row_bytes: int) -> list[slice]:
    """The blocks of rows of a matrix whose rows have ``row_bytes``; none if it is smaller than a block."""
    n_blocks = n_rows * row_bytes // BLOCK_BYTES
    if n_blocks < 2:
        return []
    step = -(-n_rows // n_blocks // ROW_UNIT) * ROW_UNIT
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
