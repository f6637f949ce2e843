"""Carries arrays between a device and page-locked host memory, on a stream of its own; no thread waits for it."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, ClassVar

from scaffe.layers.kernels import device
from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.nets.memory.tier.below import MOVES, WAITS, ArrayMemory, Record
from scaffe.nets.memory.tier.copy_lane import CopyLane
from scaffe.nets.memory.tier.pinned_places import PinnedPlaces


class DeviceMover:
    """See ArrayMover. The stream that computes (the current one) waits for copies by event, and the copies for it:

    - a copy begins behind all that was queued for computing when it was asked for: behind the last use of its array,
      or of the arrays whose memory it writes;
    - copies run one after another, so that one into memory that another has left comes behind that;
    - ``wait`` has computing go on behind an array's last copy: its contents are there, or its memory is free.

    Args:
        memory: the arrays' memory on the device.
        places: theirs on the host.

    Attributes:
        record: see ArrayMover.
        saved, fetched: bytes of the copies that were queued so far.
    """

    holds_host: ClassVar[bool] = False

    def __init__(self, memory: ArrayMemory, places: PinnedPlaces) -> None:
        self._memory, self._places = memory, places
        self._stream = device.stream()
        self._reached = _event()
        self._done: dict[int, Any] = {}  # by array: behind its last copy
        self._open: dict[int, str] = {}  # names of the arrays whose last copy nobody has waited for
        self._lane = CopyLane(self._stream)
        self._waits: CopyLane | None = None  # on the stream that computes, once somebody records
        self.record: Record | None = None
        self.saved = self.fetched = 0

    def place(self, numbers: Collection[int]) -> None:
        """See ArrayMover."""
        self._places.move(numbers)

    def save(self, number: int, name: str) -> None:
        """See ArrayMover."""
        array = self._memory.arrays[number]
        self._queue(number, "save", name, array, device.copy_to_pinned)
        self.saved += array.nbytes

    def fetch(self, number: int, name: str) -> None:
        """See ArrayMover."""
        array = self._memory.arrays[number]
        self._queue(number, "fetch", name, array, device.copy_from_pinned)
        self.fetched += array.nbytes

    def wait(self, number: int) -> None:
        """See ArrayMover: the host does not wait. Raises KeyError: no copy was queued for the array."""
        name = self._open.pop(number)
        if self.record is not None:
            self._waits = self._waits or CopyLane(device.current_stream())
            self._waits.begin(f"wait {name}")
        device.current_stream().wait_event(self._done[number])
        if self.record is not None and self._waits is not None:
            self._waits.end()

    def settle(self) -> None:
        """See ArrayMover: the host does not wait."""
        for number in list(self._open):
            self.wait(number)
        for name, lane in ((MOVES, self._lane), (WAITS, self._waits)):
            if self.record is not None and lane is not None:
                lane.report(partial(self.record, name))

    def bandwidth(self) -> Bandwidth | None:
        """See ArrayMover: not measured, since copies compete with those of batches."""
        return None

    def close(self) -> None:
        """See ArrayMover: wait until no copy reads or writes the arrays any more."""
        self._stream.synchronize()

    def _queue(self, number: int, what: str, name: str, array: Any, copy: Any) -> None:
        self._reached.record(device.current_stream())
        self._stream.wait_event(self._reached)
        if self.record is not None:
            self._lane.begin(f"{what} {name}")
        copy(array, self._places[number], self._stream)
        if self.record is not None:
            self._lane.end()
        if number not in self._done:
            self._done[number] = _event()
        self._done[number].record(self._stream)
        self._open[number] = name


def _event() -> Any:
    return device.load().cuda.Event(disable_timing=True)
