"""Moves rows of a device array into another order, by one kernel on the current stream."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.kernels import grid, kernels

SOURCE = Path(__file__).with_name("rows.cu")
WORDS = (16, 8, 4)
"""Bytes that a thread moves at once, the most first."""


class RowOrder:
    """Which row of a spread-out array each row of a packed one is; both have rows of the same length.

    Args:
        places: int (n_packed,), numbers of rows of the spread-out array, without repeats.
        row_bytes: length of a row, a multiple of 4.
    """

    def __init__(self, places: np.ndarray, row_bytes: int) -> None:
        self._places = device.load().asarray(places.astype(np.int32))
        self._placed = device.Point.now()
        self._word = next(word for word in WORDS if row_bytes % word == 0)
        self._row_words, self._n_bytes = row_bytes // self._word, row_bytes * len(places)

    def gather(self, spread: Any, packed: Any) -> None:
        """Queue ``packed[i] = spread[places[i]]``; contiguous device arrays (rows, row_elems), aligned to 16 bytes."""
        self._queue("gather", spread, packed)

    def scatter(self, packed: Any, spread: Any) -> None:
        """Queue ``spread[places[i]] = packed[i]``; see ``gather``."""
        self._queue("scatter", spread, packed)

    def _queue(self, way: str, spread: Any, packed: Any) -> None:
        self._placed.hold()
        shape = grid(self._n_bytes, kernels().most_blocks)
        addresses = [np.uint64(array.data.ptr) for array in (packed, spread, self._places)]
        kernel = _module().get_function(f"{way}_rows_{self._word}")
        kernel(*shape, (*addresses, np.int64(self._n_bytes // self._word), np.int32(self._row_words)))


@cache
def _module() -> Any:
    return device.load().RawModule(code=SOURCE.read_text(), options=("-std=c++17",))
