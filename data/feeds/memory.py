"""Whether the machine can hold a feed's batches, asked before they are allocated: too much would kill the job later."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod

from scaffe.data.errors import DataError

ITEM_BYTES = 4  # float32


def check_batches_fit(n_batches: int, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raises DataError where batches of arrays of these shapes need more than all the machine's memory.

    Args:
        n_batches: held at a time.
        shapes: of a batch's float32 arrays.
    """
    n_bytes = n_batches * ITEM_BYTES * sum(prod(shape) for shape in shapes)
    there_are = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if n_bytes > there_are:
        what = " and ".join(" x ".join(map(str, shape)) for shape in shapes)
        raise DataError(f"{n_batches} batches of {what} floats take {n_bytes >> 20} MB, the machine has "
                        f"{there_are >> 20} MB; lower batch_size or prefetch")
