"""Checks that a feed's batches fit into memory before they are allocated; otherwise the job would be killed later."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod

from scaffe.data.errors import DataError

ITEM_BYTES = 4  # float32


def check_batches_fit(n_batches: int, shapes: Sequence[tuple[int, ...]]) -> None:
    """Check that batches fit into the machine's physical memory.

    Args:
        n_batches: batches held at a time.
        shapes: shapes of the float32 arrays of one batch.

    Raises:
        DataError: they need more than all of it.
    """
    n_bytes = n_batches * ITEM_BYTES * sum(prod(shape) for shape in shapes)
    there_are = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if n_bytes > there_are:
        what = " and ".join(" x ".join(map(str, shape)) for shape in shapes)
        raise DataError(f"{n_batches} batches of {what} floats take {n_bytes >> 20} MB, the machine has "
                        f"{there_are >> 20} MB; lower batch_size or prefetch")
