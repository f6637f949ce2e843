"""Carries arrays between memory and a spill file, on threads of its own."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import ClassVar

from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.nets.memory.tier.backed import BackedMemory
from scaffe.nets.memory.tier.below import ArrayMemory, Record
from scaffe.nets.memory.tier.disk_lane import DiskLane, Move
from scaffe.nets.memory.tier.disk_lanes import DiskLanes
from scaffe.nets.memory.tier.mapping import rounded


class Mover:
    """Moves arrays out and back. What goes one way begins in the order in which it was asked for; who needs memory that
    an array leaves, or the array again, waits first until it is out.

    Args:
        pages: the arrays' memory.
        backed: the file where they go; those that last lie there each at its own place.
    """

    holds_host: ClassVar[bool] = True

    def __init__(self, pages: ArrayMemory, backed: BackedMemory) -> None:
        self._pages, self._backed, self._lanes = pages, backed, DiskLanes(backed.file)
        self._moves: dict[int, Move] = {}
        self._offsets: dict[int, int] = {}

    @property
    def record(self) -> Record | None:
        """See ArrayMover."""
        return self._lanes.record

    @record.setter
    def record(self, record: Record | None) -> None:
        self._lanes.record = record

    @property
    def saved(self) -> int:
        """See ArrayMover."""
        return self._lanes.out.n_bytes

    @property
    def fetched(self) -> int:
        """See ArrayMover."""
        return self._lanes.back.n_bytes

    def place(self, numbers: Collection[int]) -> None:
        """Give these arrays of one iteration a place each in the file; their last places are taken back. Nothing may be
        on its way. Raises UserError: the disk has no room for them."""
        self._offsets, end = {}, rounded(self._backed.n_bytes)
        for number in numbers:
            self._offsets[number] = end
            end += self._pages.arrays[number].nbytes
        self._backed.file.reserve(end)

    def save(self, number: int, name: str) -> None:
        """Begin to write an array out."""
        self._begin(self._lanes.out, number, f"save {name}")

    def fetch(self, number: int, name: str) -> None:
        """Begin to read an array back."""
        self._begin(self._lanes.back, number, f"fetch {name}")

    def wait(self, number: int) -> None:
        """Wait for the last move that was begun for an array. Raises what it raised; KeyError: none was begun."""
        self._moves.pop(number).wait()

    def settle(self) -> None:
        """Wait for all moves, whatever becomes of them."""
        for number in list(self._moves):
            with suppress(Exception):
                self.wait(number)

    def bandwidth(self) -> Bandwidth | None:
        """See ArrayMover."""
        return self._lanes.bandwidth()

    def close(self) -> None:
        """End the threads, after the pieces that they are at."""
        self._lanes.close()

    def _begin(self, lane: DiskLane, number: int, label: str) -> None:
        array, offset = self._pages.arrays[number], self._offsets.get(number)
        self._moves[number] = lane.begin(array, self._backed.offset(array) if offset is None else offset, label)
