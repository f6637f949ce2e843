"""Moves of one way between memory and a spill file, several pieces at once: most disks move more bytes a second so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

import numpy as np

from scaffe.nets.memory.tier.spill_file import CHUNK_BYTES

N_AT_ONCE = 4
"""Pieces: on the disks measured, more gained nothing (docs/memory.md)."""
PIECE_BYTES = CHUNK_BYTES
Timed = Callable[[], AbstractContextManager[object]]


class Move:
    """An array on its way.

    Args:
        pieces: of it.
    """

    def __init__(self, pieces: list[Future[None]]) -> None:
        self._pieces = pieces

    def wait(self) -> None:
        """Wait until it is there. Raises what the move of a piece raised, once none is under way."""
        for error in [piece.exception() for piece in self._pieces]:
            if error is not None:
                raise error


class DiskLane:
    """Begins pieces in the order in which their arrays are moved.

    Args:
        move: moves a piece of an array, to or from an offset in the file; called on several threads at once.
        name: of the threads.
        timed: makes a context in which a piece is on its way.
        shown: called after each move with its label, start and end (``time.perf_counter()``), which begins no earlier
            than the one before it ended.

    Attributes:
        n_bytes: moved so far.
    """

    def __init__(self, move: Callable[[np.ndarray, int], None], name: str, timed: Timed,
                 shown: Callable[[str, float, float], None]) -> None:
        self._move, self._timed, self._shown = move, timed, shown
        self._threads, self._lock = ThreadPoolExecutor(N_AT_ONCE, name), threading.Lock()
        self._last_end = 0.0
        self.n_bytes = 0

    def begin(self, array: np.ndarray, offset: int, label: str) -> Move:
        """Move a flat array of bytes to or from an offset in the file."""
        starts = range(0, array.nbytes, PIECE_BYTES)
        began, left = list[float](), [len(starts)]

        def piece(start: int) -> None:
            part = array[start:start + PIECE_BYTES]
            began.append(time.perf_counter())
            try:
                with self._timed():
                    self._move(part, offset + start)
            finally:
                self._end(part.nbytes, label, began, left)

        return Move([self._threads.submit(piece, start) for start in starts])

    def close(self) -> None:
        """End the threads, after the pieces that they are at."""
        self._threads.shutdown(cancel_futures=True)

    def _end(self, n_bytes: int, label: str, began: list[float], left: list[int]) -> None:
        with self._lock:
            self.n_bytes += n_bytes
            left[0] -= 1
            if left[0] == 0:
                start = max(began[0], self._last_end)
                self._last_end = max(time.perf_counter(), start)
                self._shown(label, start, self._last_end)
