"""Spans of memory by address, which do not keep an array alive, and the streams of one engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.cupy_types import CudaStream
from scaffe.collectives.cuda.device import Point


@dataclass(frozen=True, slots=True)
class Span:
    """`size` elements of `dtype` from `address` on, in device memory or in pinned host memory."""

    address: int
    size: int
    dtype: np.dtype[Any]

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __getitem__(self, part: slice) -> Span:
        start, stop, _ = part.indices(self.size)
        return Span(self.address + start * self.dtype.itemsize, stop - start, self.dtype)

    def overlaps(self, other: Span) -> bool:
        return self.address < other.address + other.nbytes and other.address < self.address + self.nbytes

    def holds(self, other: Span) -> bool:
        return self.address <= other.address and other.address + other.nbytes <= self.address + self.nbytes


BEFORE_COMPUTE = -1
"""Stream priority: when a multiprocessor has room, blocks of a sum go before those of the caller's long kernels."""


class Streams:
    """A device, one engine's communication stream, and a second stream for copies to the host.

    Between `begin` and `end` the communication stream is the thread's current one. No method blocks the host.

    Attributes:
        comm: the communication stream: sums, packing, copies from the host.
        copy: the stream that copies to the host.
    """

    def __init__(self) -> None:
        """Creates the streams on the current device. Raises CommError without one."""
        self._cuda = device.load().cuda
        self.number = self._cuda.Device().id
        self.comm = self._cuda.Stream(non_blocking=True, priority=BEFORE_COMPUTE)
        self.copy = self._cuda.Stream(non_blocking=True, priority=BEFORE_COMPUTE)
        self._before: list[CudaStream] = []

    def begin(self, after: Point | None) -> None:
        """Begins a collective: makes the communication stream current and lets it follow `after`. ``after``: where the
        buffer's values are there; nobody else may use the point afterwards."""
        if after is not None:
            after.hold_and_end(self.comm)
        self._before.append(self._cuda.get_current_stream())  # not `with`: see `device.on_stream`
        self.comm.use()

    def end(self) -> Point:
        """Ends a collective whose device work is all queued; its result is there when the returned point is reached."""
        point = Point.now(self.comm)
        self.leave()
        return point

    def leave(self) -> None:
        self._before.pop().use()

    def event(self) -> Point:
        """Creates a point that `Point.mark` sets, any number of times."""
        return Point(self._cuda.Event(disable_timing=True))
