"""Carries arrays between a device and page-locked host memory, on a stream each way; no thread waits for them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, ClassVar

from scaffe.layers.kernels import device
from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.nets.memory.tier.below import BACK, OUT, WAITS, ArrayMemory, Record
from scaffe.nets.memory.tier.copy_lane import CopyLane
from scaffe.nets.memory.tier.pinned_places import PinnedPlaces


class DeviceMover:
    """See ArrayMover. The stream that computes (the current one) waits for copies by event, and the copies for it:

    - a copy begins behind all that was queued for computing when it was asked for: behind the last use of its array,
      or of the arrays whose memory it writes;
    - ``wait`` has computing go on behind an array's last copy: its contents are there, or its memory is free. So a copy
      into memory that another array has left, or one back of what was copied out, comes behind the copy out if it is
      asked for behind the wait for that, as plans have it;
    - copies one way run one after another, and beside those the other way: links carry both at once.

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
        self._out, self._back = CopyLane(device.stream()), CopyLane(device.stream())
        self._reached = _event()
        self._done: dict[int, Any] = {}  # by array: behind its last copy
        self._open: dict[int, str] = {}  # names of the arrays whose last copy nobody has waited for
        self._waits: CopyLane | None = None  # on the stream that computes, once somebody records
        self.record: Record | None = None
        self.saved = self.fetched = 0

    def place(self, numbers: Collection[int]) -> None:
        """See ArrayMover."""
        self._places.move(numbers)

    def save(self, number: int, name: str) -> None:
        """See ArrayMover."""
        self._queue(self._out, device.copy_to_pinned, number, "save", name)
        self.saved += self._memory.arrays[number].nbytes

    def fetch(self, number: int, name: str) -> None:
        """See ArrayMover."""
        self._queue(self._back, device.copy_from_pinned, number, "fetch", name)
        self.fetched += self._memory.arrays[number].nbytes

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
        for name, lane in ((OUT, self._out), (BACK, self._back), (WAITS, self._waits)):
            if self.record is not None and lane is not None:
                lane.report(partial(self.record, name))

    def bandwidth(self) -> Bandwidth | None:
        """See ArrayMover: not measured, since copies compete with those of batches."""
        return None

    def close(self) -> None:
        """See ArrayMover: wait until no copy reads or writes the arrays any more."""
        for lane in (self._out, self._back):
            lane.stream.synchronize()

    def _queue(self, lane: CopyLane, copy: Any, number: int, what: str, name: str) -> None:
        self._reached.record(device.current_stream())
        lane.stream.wait_event(self._reached)
        if self.record is not None:
            lane.begin(f"{what} {name}")
        copy(self._memory.arrays[number], self._places[number], lane.stream)
        if self.record is not None:
            lane.end()
        if number not in self._done:
            self._done[number] = _event()
        self._done[number].record(lane.stream)
        self._open[number] = name


def _event() -> Any:
    return device.load().cuda.Event(disable_timing=True)
