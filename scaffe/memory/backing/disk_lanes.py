"""Moves of one way between memory and a spill file, several chunks at once, since most disks move more bytes a second
so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import numpy as np

from scaffe.memory.backing.spill_file import CHUNK_BYTES, SpillFile
from scaffe.memory.backing.store import BACK, OUT, Record
from scaffe.memory.problem.iteration import Bandwidth

N_AT_ONCE = 4
"""Pieces: on the disks measured, more gained nothing (docs/memory.md)."""
CHUNK_BYTES = CHUNK_BYTES
Timed = Callable[[], AbstractContextManager[object]]


class Move:
    """A tensor on its way, as the chunks of it."""

    def __init__(self, chunks: list[Future[None]]) -> None:
        self._chunks = chunks

    def wait(self) -> None:
        """Wait until it has arrived. Raises what the move of a chunk raised, once no chunk is under way."""
        for error in [chunk.exception() for chunk in self._chunks]:
            if error is not None:
                raise error


class DiskLane:
    """Moves tensors one way, beginning chunks in the order in which the tensors were given.

    Args:
        move: moves a chunk of an array, to or from an offset in the file; called on several threads at once.
        timed: makes a context in which a chunk is on its way.
        shown: called after each move with its label, start and end (``time.perf_counter()``); a move begins no earlier
            than the one before it ended.
    """

    def __init__(self, move: Callable[[np.ndarray, int], None], name: str, timed: Timed,
                 shown: Callable[[str, float, float], None]) -> None:
        self._move, self._timed, self._shown = move, timed, shown
        self._threads, self._lock = ThreadPoolExecutor(N_AT_ONCE, name), threading.Lock()
        self._last_end = 0.0
        self.n_bytes = 0

    def begin(self, array: np.ndarray, offset: int, label: str) -> Move:
        """Begin to move a flat array of bytes to or from an offset in the file."""
        starts = range(0, array.nbytes, CHUNK_BYTES)
        began, left = list[float](), [len(starts)]

        def chunk(start: int) -> None:
            part = array[start:start + CHUNK_BYTES]
            began.append(time.perf_counter())
            try:
                with self._timed():
                    self._move(part, offset + start)
            finally:
                self._end(part.nbytes, label, began, left)

        return Move([self._threads.submit(chunk, start) for start in starts])

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _end(self, n_bytes: int, label: str, began: list[float], left: list[int]) -> None:
        with self._lock:
            self.n_bytes += n_bytes
            left[0] -= 1
            if left[0] == 0:
                start = max(began[0], self._last_end)
                self._last_end = max(time.perf_counter(), start)
                self._shown(label, start, self._last_end)


class DiskSeconds:
    """Shares a disk's time between both ways: what passes while both are busy counts half for each, so that their sum
    is the time in which the disk was busy. Bytes over seconds is then what one way would have alone."""

    def __init__(self) -> None:
        self.seconds, self._lock = [0.0, 0.0], threading.Lock()
        self._n_under_way, self._at = [0, 0], 0.0

    def count(self, way: int, change: int, now: float) -> None:
        """A chunk begins (change 1) or ends (-1) on a way."""
        busy = [i for i, number in enumerate(self._n_under_way) if number]
        for i in busy:
            self.seconds[i] += (now - self._at) / len(busy)
        self._n_under_way[way] += change
        self._at = now

    @contextmanager
    def __call__(self, way: int) -> Iterator[None]:
        """A thread moves a chunk within the with-block. ``seconds`` is current while none does."""
        with self._lock:
            self.count(way, 1, time.perf_counter())
        try:
            yield
        finally:
            with self._lock:
                self.count(way, -1, time.perf_counter())


class DiskLanes:
    """A lane each way: offloads do not wait for fetches, nor fetches for offloads."""

    def __init__(self, file: SpillFile) -> None:
        self._clock = DiskSeconds()
        self.record: Record | None = None
        self.out, self.back = (
            DiskLane(move, f"scaffe-{way}", partial(self._clock, number), partial(self._show, way))
            for number, (way, move) in enumerate(((OUT, file.write), (BACK, file.read))))

    def bandwidth(self) -> Bandwidth | None:
        """Bytes a second that each way would have alone, of all moves so far; None if one way had none."""
        if not (self.out.n_bytes and self.back.n_bytes):
            return None
        out, back = self._clock.seconds
        return Bandwidth(self.out.n_bytes / out, self.back.n_bytes / back)

    def close(self) -> None:
        for lane in (self.out, self.back):
            lane.close()

    def _show(self, way: str, label: str, start: float, end: float) -> None:
        if self.record is not None:
            self.record(way, label, start, end)
