"""Carries arrays between memory and a spill file, on a thread of its own, in the order in which it was asked."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar

from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.nets.memory.tier.backed import BackedMemory
from scaffe.nets.memory.tier.below import ArrayMemory, Record
from scaffe.nets.memory.tier.mapping import rounded


class Mover:
    """Moves arrays out and back.

    Args:
        pages: the arrays' memory.
        backed: the file where they go; those that last lie there each at its own place.

    Attributes:
        record: called after each move with its label, start and end (``time.perf_counter()``); None: nobody records.
        record_wait: not called.
        saved, fetched: bytes moved so far.
        seconds: that moves took so far, out and back.
    """

    holds_host: ClassVar[bool] = True

    def __init__(self, pages: ArrayMemory, backed: BackedMemory) -> None:
        self._pages, self._backed, self._file = pages, backed, backed.file
        self._thread = ThreadPoolExecutor(1, "scaffe-mover")
        self._moves: dict[int, Future[None]] = {}
        self._offsets: dict[int, int] = {}
        self.record: Record | None = None
        self.record_wait: Record | None = None
        self.saved = self.fetched = 0
        self.seconds = [0.0, 0.0]

    def place(self, numbers: Collection[int]) -> None:
        """Give these arrays of one iteration a place each in the file; their last places are taken back. Nothing may be
        on its way. Raises UserError: the disk has no room for them."""
        self._offsets, end = {}, rounded(self._backed.n_bytes)
        for number in numbers:
            self._offsets[number] = end
            end += self._pages.arrays[number].nbytes
        self._file.reserve(end)

    def save(self, number: int, name: str) -> None:
        """Begin to write an array out."""
        self._moves[number] = self._thread.submit(self._save, number, name)

    def fetch(self, number: int, name: str) -> None:
        """Begin to read an array back."""
        self._moves[number] = self._thread.submit(self._fetch, number, name)

    def wait(self, number: int) -> None:
        """Wait for the last move that was begun for an array. Raises what it raised; KeyError: none was begun."""
        self._moves.pop(number).result()

    def settle(self) -> None:
        """Wait for all moves, whatever becomes of them."""
        for move in self._moves.values():
            move.exception()
        self._moves.clear()

    def bandwidth(self) -> Bandwidth | None:
        """Bytes a second each way, of all moves so far; None: there were none."""
        if not (self.saved and self.fetched):
            return None
        return Bandwidth(self.saved / self.seconds[0], self.fetched / self.seconds[1])

    def close(self) -> None:
        """End the thread, after the move that it is at."""
        self._thread.shutdown(cancel_futures=True)

    def _save(self, number: int, name: str) -> None:
        started = time.perf_counter()
        self._file.write(self._pages.arrays[number], self._offset(number))
        self.saved += self._pages.arrays[number].nbytes
        self._note(0, f"save {name}", started)

    def _fetch(self, number: int, name: str) -> None:
        started = time.perf_counter()
        self._file.read(self._pages.arrays[number], self._offset(number))
        self.fetched += self._pages.arrays[number].nbytes
        self._note(1, f"fetch {name}", started)

    def _offset(self, number: int) -> int:
        found = self._offsets.get(number)
        return self._backed.offset(self._pages.arrays[number]) if found is None else found

    def _note(self, way: int, label: str, started: float) -> None:
        ended = time.perf_counter()
        self.seconds[way] += ended - started
        if self.record is not None:
            self.record(label, started, ended)
