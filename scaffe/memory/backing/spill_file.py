"""A file without a name on a local disk that holds what does not fit in memory, and moves to it and back.

It never has a name, so that the system removes it with the process, however that ends. Several chunks move at once,
since most disks move more bytes a second so.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from scaffe import temporary
from scaffe.errors import UserError
from scaffe.mapped_files import WriteBack
from scaffe.memory.backing.store import BACK, OUT, Record
from scaffe.memory.problem.iteration import Bandwidth

NAME = "scaffe-spill"  # where a file needs one for a moment
CHUNK_BYTES = 8 << 20  # of one read or write


class SpillFile:
    """Reads and writes past the page cache if the file system can. Raises UserError if there is no such folder, or no
    file can be made in it. ``descriptor``: of the open file."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.n_bytes = 0
        if not Path(folder).is_dir():
            raise UserError(f"-spill {folder}: there is no such folder")
        try:
            self.descriptor = temporary.make_nameless(Path(folder), NAME, is_direct=True)
        except OSError as error:
            raise UserError(f"-spill {folder}: {error.strerror}") from error
        self._written = WriteBack(os.dup(self.descriptor), folder, "parameters or histories")

    def check(self) -> None:
        """Raise UserError if the disk has failed to write pages of the mapped file."""
        if fault := self._written.fault():
            raise UserError(f"-spill: {fault}")

    def reserve(self, n_bytes: int) -> None:
        """Make the file so long, with disk blocks for all of it. Raises UserError if the disk has too few."""
        if n_bytes <= self.n_bytes:
            return
        free = self.free_bytes + self.n_bytes
        if n_bytes > free:
            raise UserError(f"-spill {self.folder}: {n_bytes:,} bytes are needed, the disk has {free:,} free")
        try:
            os.posix_fallocate(self.descriptor, self.n_bytes, n_bytes - self.n_bytes)
        except OSError as error:
            raise UserError(f"-spill {self.folder}: {n_bytes:,} bytes are needed: {error.strerror}") from error
        self.n_bytes = n_bytes

    @property
    def free_bytes(self) -> int:
        space = os.fstatvfs(self.descriptor)
        return space.f_bavail * space.f_frsize

    def write(self, array: np.ndarray, offset: int) -> None:
        """Write an array, uint8, whole pages at a page's boundary. Raises UserError."""
        self._move(array, offset, lambda part, at: os.pwrite(self.descriptor, part, at), "written")

    def read(self, array: np.ndarray, offset: int) -> None:
        """Read into an array, uint8, whole pages at a page's boundary. Raises UserError."""
        self._move(array, offset, lambda part, at: os.preadv(self.descriptor, [part], at), "read")

    def _move(self, array: np.ndarray, offset: int, move: Callable[[memoryview, int], int], done: str) -> None:
        view, at = array.data, 0
        while at < len(view):
            try:
                n_moved = move(view[at:at + CHUNK_BYTES], offset + at)
            except OSError as error:
                raise UserError(f"-spill {self.folder}: {len(view):,} bytes could not be {done}: "
                                f"{error.strerror}") from error
            if n_moved == 0:
                raise UserError(f"-spill {self.folder}: the file ends before {len(view):,} bytes were {done}")
            at += n_moved

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


N_AT_ONCE = 4
"""Pieces: on the disks measured, more gained nothing (docs/design/memory.md)."""
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
