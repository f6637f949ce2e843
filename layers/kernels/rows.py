"""Rows of large weights whose gradients are computed, and updated, one block after another."""

from __future__ import annotations

BLOCK_BYTES = 32 << 20
"""Of a block, nearly. In shorter ones copies of what is multiplied cost more: of fc6's gradient in CaffeNet 7 to 10 %
where blocks have 16 MB, 2 to 5 % so."""
ROW_UNIT = 16  # rows of a block are multiples of it, so that each begins on a cache line


def row_blocks(n_rows: int, row_bytes: int) -> list[slice]:
    """The blocks of rows of a matrix, none of a short one.

    Args:
        n_rows: of the matrix.
        row_bytes: of each row.
    """
    n_blocks = n_rows * row_bytes // BLOCK_BYTES
    if n_blocks < 2:
        return []
    step = -(-n_rows // n_blocks // ROW_UNIT) * ROW_UNIT
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
