"""Disk below host memory: tensors are offloaded to a spill file."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import ClassVar

from scaffe.mapped_memory import address, dismiss, rounded
from scaffe.memory.backing.file_backed import FileBackedMemory
from scaffe.memory.backing.pages import Pages
from scaffe.memory.backing.speeds import disk_speed
from scaffe.memory.backing.spill_file import DiskLane, DiskLanes, Move
from scaffe.memory.backing.store import ArrayMemory, ArrayMover, Opened, PersistentTensors
from scaffe.memory.plan import greedy, layout
from scaffe.memory.problem.iteration import Bandwidth
from scaffe.memory.problem.tensors import StateTensor


class DiskStore:
    """See BackingStore: activations lie in one memory if they fit, and all else has pages of its own. ``backed``:
    memory that the spill file backs, and what lies in it already."""

    least_bytes = staticmethod(greedy.least_bytes)
    fitted = staticmethod(layout.fitted)

    def __init__(self, backed: FileBackedMemory) -> None:
        self._backed = backed

    def bandwidth(self) -> Bandwidth:
        return disk_speed(self._backed.file)

    def open(self, lengths: Sequence[int], state: Sequence[StateTensor], names: dict[int, str]) -> Opened:
        pages = Pages(lengths)
        for each in state:
            pages.adopt(each.memory)
        refreshed = [i for i, each in enumerate(state, len(lengths)) if each.is_refreshed]
        return Opened(pages, Mover(pages, self._backed),
                      FilePersistentTensors(names, pages, self._backed, refreshed), HostClock())


class FilePersistentTensors(PersistentTensors):
    """See PersistentTensors. Before the first iteration, and whenever somebody wants to read them whole, those that lie
    in the file are shown from there: their addresses map the file's pages, which need not fit in memory. ``refreshed``:
    further tensors that lie there, by number, whose contents nobody needs once an iteration begins."""

    def __init__(self, names: dict[int, str], pages: ArrayMemory, backed: FileBackedMemory,
                 refreshed: Collection[int] = ()) -> None:
        self._names, self._pages, self._backed, self._refreshed = names, pages, backed, set(refreshed)
        self._moved: set[int] = set()  # by the plan
        self._away, self._shown = set(names), {*names, *refreshed}

    def move(self, numbers: Collection[int]) -> None:
        self._moved = self._names.keys() & set(numbers)

    def begin(self, mover: ArrayMover) -> None:
        """See PersistentTensors. Raises UserError also if the disk has not written what was shown."""
        if self._shown:
            self._backed.file.check()
        for number in self._shown:
            self._backed.hide(self._pages.arrays[number])
        self._shown.clear()
        for number in sorted(self._moved - self._away):
            mover.offload(number, self._names[number])
            mover.wait(number)
            self._away.add(number)
        for number in self._away:
            self._pages.drop(number)  # also what a pass that ended early has left
        for number in sorted(self._away - self._moved):
            self._pages.take(number)
            mover.fetch(number, self._names[number])
            mover.wait(number)
            self._away.discard(number)

    def show(self, numbers: Collection[int]) -> None:
        """See PersistentTensors. No pages may wait for an array. Raises UserError if the disk has not written what was
        shown before."""
        self._backed.file.check()
        for number in ((self._away | self._refreshed) - self._shown) & set(numbers):
            self._backed.show(self._pages.arrays[number])
            self._shown.add(number)

    def release(self, numbers: Collection[int]) -> None:
        for number in self._shown & set(numbers):
            array = self._pages.arrays[number]
            dismiss(address(array), array.nbytes)


class Mover(DiskLanes):
    """See ArrayMover. Moves of one way begin in the order in which they were asked for. Whoever needs the memory of a
    tensor that is being offloaded, or the tensor again, waits first until it is out. ``backed``: the file; persistent
    tensors have places of their own in it."""

    holds_host: ClassVar[bool] = True

    def __init__(self, pages: ArrayMemory, backed: FileBackedMemory) -> None:
        super().__init__(backed.file)
        self._pages, self._backed = pages, backed
        self._moves: dict[int, Move] = {}
        self._offsets: dict[int, int] = {}

    @property
    def offloaded(self) -> int:
        return self.out.n_bytes

    @property
    def fetched(self) -> int:
        return self.back.n_bytes

    def place(self, numbers: Collection[int]) -> None:
        self._offsets, end = {}, rounded(self._backed.n_bytes)
        for number in numbers:
            self._offsets[number] = end
            end += self._pages.arrays[number].nbytes
        self._backed.file.reserve(end)

    def offload(self, number: int, name: str) -> None:
        self._begin(self.out, number, f"save {name}")

    def fetch(self, number: int, name: str) -> None:
        self._begin(self.back, number, f"fetch {name}")

    def wait(self, number: int) -> None:
        """See ArrayMover. Raises what the move raised, and KeyError if none was begun."""
        self._moves.pop(number).wait()

    def wait_all(self) -> None:
        for number in list(self._moves):
            with suppress(Exception):
                self.wait(number)

    def _begin(self, lane: DiskLane, number: int, label: str) -> None:
        array, offset = self._pages.arrays[number], self._offsets.get(number)
        self._moves[number] = lane.begin(array, self._backed.offset(array) if offset is None else offset, label)


class HostClock:
    """See Clock."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._started = 0.0

    def begin(self, step: int) -> None:
        self._started = time.perf_counter()

    def end(self, step: int) -> None:
        now = time.perf_counter()
        self.seconds[step] = now - self._started
        self._started = now
