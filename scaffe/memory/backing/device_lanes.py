"""A device's tensors, and when copies and steps on its streams ran, measured by events."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.device_pages import DevicePages
from scaffe.memory.backing.store import ArrayMemory
from scaffe.memory.plan.layout import Stay


class CopyLane:
    """The copies of one stream, or what it waits for, each between two events."""

    def __init__(self, stream: Any) -> None:
        self.stream, self._zero, self._began = stream, time.perf_counter(), _mark(stream)
        self._copies: deque[tuple[str, Any, Any]] = deque()

    def begin(self, label: str) -> None:
        self._copies.append((label, _mark(self.stream), None))

    def end(self) -> None:
        label, start, _ = self._copies.pop()
        self._copies.append((label, start, _mark(self.stream)))

    def report(self, record: Callable[[str, float, float], None]) -> None:
        """Pass on copies that have ended since the last call. The host does not wait."""
        while self._copies and self._copies[0][2] is not None and self._copies[0][2].done:
            label, start, end = self._copies.popleft()
            record(label, self._host_time(start), self._host_time(end))

    def _host_time(self, event: Any) -> float:
        return self._zero + float(device.load().cuda.get_elapsed_time(self._began, event)) / 1e3


def _mark(stream: Any) -> Any:
    event = device.load().cuda.Event()
    event.record(stream)
    return event


class DeviceArena(ArrayMemory):
    """See ArrayMemory. Nothing is taken or given back: a tensor's memory is its own while the plan has it there.

    Args:
        memory: all of it, in one piece, uint8.
        pages: the pages that it consists of; None if it has none.

    Attributes:
        arrays: views of the memory, or of pages; none before the first ``arrange``.
        most_bytes: 0, since all tensors are arranged.
    """

    def __init__(self, memory: Any, lengths: Sequence[int], pages: DevicePages | None = None) -> None:
        self._memory, self._lengths, self._pages = memory, list(lengths), pages
        self.arrays: list[Any] = []
        self.most_bytes = 0
        self._edges: list[int] = []  # steps from which some array lies elsewhere
        self._since = -1
        self._several: dict[int, tuple[list[int], list[Any]]] = {}  # by number: first steps, and the array from each on

    def arrange(self, offsets: Sequence[int] | None, stays: Sequence[Stay] = ()) -> None:
        self._several, self._since = {}, -1
        if offsets is not None:
            self.arrays[:] = [self._memory[start:start + n_bytes]
                              for start, n_bytes in zip(offsets, self._lengths, strict=True)]
        elif self._pages is None or not stays:
            raise ValueError("arrays on a device lie in one memory, or in pages")
        else:
            found: dict[int, tuple[list[int], list[Any]]] = {number: ([], []) for number in range(len(self._lengths))}
            for stay in stays:
                found[stay.tensor][0].append(stay.first_step)
                found[stay.tensor][1].append(self._pages.mapped(stay.pages)[:self._lengths[stay.tensor]])
            self.arrays[:] = [found[number][1][0] for number in range(len(self._lengths))]
            self._several = {number: each for number, each in found.items() if len(each[0]) > 1}
        self._edges = sorted({step for steps, _ in self._several.values() for step in steps[1:]})

    def place(self, step: int) -> Sequence[int]:
        since = bisect_right(self._edges, step)
        if since == self._since:
            return ()
        self._since, moved = since, list[int]()
        for number, (steps, arrays) in self._several.items():
            array = arrays[max(bisect_right(steps, step) - 1, 0)]
            if array is not self.arrays[number]:
                self.arrays[number] = array
                moved.append(number)
        return moved


class PinnedPlaces:
    """A place in page-locked memory for each tensor that is offloaded. Persistent ones, and parameters that are
    refreshed in each iteration, keep theirs; the others have one for as long as a plan does. ``persistent``: those that
    keep theirs, by number, with their places. An empty array stands for a place yet to be made, which is zero at
    first."""

    def __init__(self, lengths: Sequence[int], persistent: Mapping[int, np.ndarray]) -> None:
        self.lengths = lengths
        blank = _divided(lengths, sorted(number for number, place in persistent.items() if not place.nbytes))
        for place in blank.values():
            place[...] = 0
        self._persistent = {**persistent, **blank}
        self._moved: dict[int, np.ndarray] = {}

    def __getitem__(self, number: int) -> np.ndarray:
        return self._persistent[number] if number in self._persistent else self._moved[number]

    def move(self, numbers: Collection[int]) -> None:
        wanted = sorted(number for number in numbers if number not in self._persistent)
        if wanted != list(self._moved):
            self._moved.clear()
            self._moved = _divided(self.lengths, wanted)


def _divided(lengths: Sequence[int], numbers: Sequence[int]) -> dict[int, np.ndarray]:
    whole, start, found = device.pinned(sum(lengths[i] for i in numbers), np.uint8), 0, {}
    for number in numbers:
        found[number] = whole[start:start + lengths[number]]
        start += lengths[number]
    return found
